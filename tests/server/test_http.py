from __future__ import annotations

import json
import logging

import pytest
from tornado.web import HTTPError

from jupyter_sandbox.errors import Forbidden, InvalidRequest, PathNotFound, ProviderError, SandboxError, SessionBusy
from jupyter_sandbox.models import (
    CellDone,
    CellOutput,
    ExecRequest,
    RuntimeCheckpointRequest,
    RuntimeCreateRequest,
)
from jupyter_sandbox.server import http
from jupyter_sandbox.server.routes import LatencyQuery, Nothing, RuntimesQuery

LOG = logging.getLogger("test")


def refusal(parse, *arguments) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse(*arguments)
    return caught.value


def test_no_body_is_an_empty_object():
    assert http.parse_body(RuntimeCreateRequest, b"") == RuntimeCreateRequest()


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"1", b"null", b"\xff", b"{'a': 1}", b"[" * 10_000])
def test_what_is_not_an_object_is_the_bodys_fault(body):
    error = refusal(http.parse_body, RuntimeCreateRequest, body)
    assert error.context["field"] == "body"
    assert error.http_status == 400


def test_a_missing_field_is_named():
    error = refusal(http.parse_body, RuntimeCheckpointRequest, b"{}")
    assert error.context["field"] == "runtime_id"


def test_an_unknown_field_is_named_with_those_that_exist():
    error = refusal(http.parse_body, RuntimeCheckpointRequest, b'{"runtime_id": "rt_%s", "nam": 1}' % (b"0" * 32))
    assert error.context["field"] == "nam"
    assert error.message == "There is no field 'nam'"
    assert error.remedy == "The fields are metadata, name, rebind, runtime_id"


def test_a_field_inside_a_field_is_named_by_its_path():
    error = refusal(http.parse_body, RuntimeCreateRequest, b'{"limits": {"memory_mb": 1}}')
    assert error.context["field"] == "limits.memory_mb"


def test_a_rule_over_several_fields_is_told_in_its_own_words():
    error = refusal(http.parse_body, ExecRequest, b"{}")
    assert error.message == "body: give exactly one of argv and shell"


def test_the_value_is_not_repeated():
    error = refusal(http.parse_body, RuntimeCreateRequest, b'{"name": ["hunter2"]}')
    assert "hunter2" not in json.dumps(error.to_dict())


def test_a_query_is_validated_too():
    assert http.parse_query(RuntimesQuery, "all=1").include_closed
    assert not http.parse_query(RuntimesQuery, "").include_closed
    assert http.parse_query(LatencyQuery, "since_ms=17").since_ms == 17
    assert refusal(http.parse_query, RuntimesQuery, "all=perhaps").context["field"] == "all"
    assert refusal(http.parse_query, LatencyQuery, "since_ms=-1").context["field"] == "since_ms"
    assert refusal(http.parse_query, Nothing, "al=1").context["field"] == "al"


def test_jupyters_own_parameters_pass():
    assert http.parse_query(Nothing, "token=x&_xsrf=y&no_track_activity=1") == Nothing()


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, "ü", "a\n"])
def test_a_bad_idempotency_key_is_refused(key):
    assert refusal(http.idempotency_key, key).context["field"] == "Idempotency-Key"


def test_a_fingerprint_tells_requests_apart():
    marks = {
        http.fingerprint("POST", "runtimes", b"{}"),
        http.fingerprint("PATCH", "runtimes", b"{}"),
        http.fingerprint("POST", "runtimes{}", b""),
        http.fingerprint("POST", "runtime", b"s{}"),
    }
    assert len(marks) == 4
    assert http.fingerprint("POST", "runtimes", b"{}") in marks


def test_an_error_of_ours_stays_what_it_is():
    error = SessionBusy("busy", operation="pause")
    assert http.to_error(error, 500) is error


def test_tornados_errors_become_ours():
    error = http.to_error(HTTPError(403, "not %s", "you"), 403)
    assert isinstance(error, Forbidden)
    assert error.message == "not you"
    assert http.to_error(HTTPError(404), 404).message == "Not Found"


def test_nothing_of_a_bug_is_told():
    error = http.to_error(RuntimeError("secret detail"), 500)
    assert type(error) is SandboxError
    assert "secret" not in http.error_body(error).decode()


def test_a_path_error_has_its_own_text():
    body = json.loads(http.error_body(PathNotFound("There is nothing at 'x'", path="x")))
    assert body == {
        "code": "PathNotFound",
        "message": "There is nothing at 'x'",
        "remedy": "",
        "context": {"path": "x"},
    }


class Source:
    """Events, then an error or the end; remembers that it was closed."""

    def __init__(self, *events, error: Exception | None = None) -> None:
        self.events, self.error, self.closed = events, error, False

    async def __call__(self):
        try:
            for event in self.events:
                yield event
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True


OUTPUT = CellOutput(output={"output_type": "stream", "name": "stdout", "text": "a\u2028b\n"})


async def lines(source: Source) -> list[bytes]:
    return [line async for line in http.json_lines(source(), LOG)]


async def test_each_event_is_one_line():
    got = await lines(Source(OUTPUT, CellDone(status="ok")))
    assert [line.count(b"\n") for line in got] == [1, 1]
    assert [json.loads(line)["event"] for line in got] == ["output", "done"]


async def test_an_error_before_the_first_event_is_raised():
    with pytest.raises(SessionBusy):
        await lines(Source(error=SessionBusy("busy")))


async def test_a_later_error_is_the_last_line():
    got = await lines(Source(OUTPUT, error=ProviderError("gone", remedy="again")))
    last = json.loads(got[-1])
    assert (last["event"], last["http_status"], last["error"]["code"]) == ("failed", 502, "ProviderError")


async def test_a_later_bug_is_the_last_line_and_in_the_log(caplog):
    got = await lines(Source(OUTPUT, error=ZeroDivisionError("secret detail")))
    assert json.loads(got[-1])["error"]["code"] == "SandboxError"
    assert b"secret" not in got[-1]
    assert "secret detail" in caplog.text


async def test_closing_the_lines_closes_their_source():
    source = Source(OUTPUT, OUTPUT)
    opened = http.json_lines(source(), LOG)
    await anext(opened)
    assert not source.closed
    await opened.aclose()
    assert source.closed
