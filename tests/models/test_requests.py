from __future__ import annotations

import pytest
from pydantic import ValidationError

from jupyter_sandbox import models
from jupyter_sandbox.models import (
    CheckpointRecord,
    CheckpointState,
    ExecRequest,
    Request,
    RuntimeCreateRequest,
    SessionLifecycleStatus,
    SessionRecord,
    SessionSettings,
    Timings,
    new_id,
)

REQUESTS = [m for m in vars(models).values() if isinstance(m, type) and issubclass(m, Request) and m is not Request]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda m: m.__name__)
def test_an_unknown_field_is_an_error(request_: type[Request]) -> None:
    with pytest.raises(ValidationError) as caught:
        request_.model_validate({"no_such_field": 1})
    assert ("no_such_field",) in {error["loc"] for error in caught.value.errors()}


def test_exec_takes_exactly_one_command() -> None:
    for fields in ({}, {"argv": ["a"], "shell": "a"}, {"argv": []}):
        with pytest.raises(ValidationError):
            ExecRequest.model_validate(fields)


def test_records_never_change() -> None:
    with pytest.raises(ValidationError):
        RuntimeCreateRequest(engine="toy").engine = "other"


def test_the_public_record_has_six_fields_and_nothing_of_the_backend() -> None:
    session = SessionRecord(
        session_id=new_id("rt"),
        conversation_id="c",
        sender_id="s",
        status=SessionLifecycleStatus.idle,
        settings=SessionSettings(engine="toy", image="i"),
        backend_instance="be_secret",
        created_at_ms=1,
        updated_at_ms=2,
    )
    public = session.public().model_dump(mode="json")
    assert set(public) == {"runtime_id", "conversation_id", "sender_id", "status", "created_at_ms", "updated_at_ms"}
    assert "be_secret" not in str(public)


def test_the_ten_field_summary() -> None:
    record = CheckpointRecord(
        checkpoint_id=new_id("cp"),
        runtime_id=new_id("rt"),
        source="exp",
        state=CheckpointState.ready,
        created_at_ms=1_700_000_000_123,
        engine="toy",
        image="i",
        memory=True,
        files=True,
        processes=False,
        forks=2,
    )
    summary = record.summary().model_dump()
    assert len(summary) == 10
    assert summary["name"] == record.checkpoint_id
    assert summary["created_at"] == "2023-11-14T22:13:20.123000Z"
    assert (summary["host"], summary["forks"]) == ("", 2)


def test_total_is_the_sum_of_the_parts() -> None:
    assert Timings(queue_ms=1, service_ms=2, engine_ms=3, provider_ms=4).total_ms == 10
