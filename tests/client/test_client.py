"""Every call of the client: what it sends, and what it makes of the answer. Both faces."""

from __future__ import annotations

import sys

import pytest

from jupyter_sandbox.client import Checkpoint, Checkpoints, Endpoint, LatencyView, LineageView, RuntimesView
from jupyter_sandbox.errors import InvalidRequest, SandboxError
from jupyter_sandbox.models import Limits
from tests.client import samples
from tests.client.faces import TOKEN, URL, Face, Script

RUNTIME = samples.runtime().model_dump(mode="json")
CHECKPOINT = samples.checkpoint().model_dump(mode="json")
TIMINGS = samples.TIMINGS.model_dump()
CREATED = {"runtime": RUNTIME, "created": True, "timings": TIMINGS}
CHECKPOINTED = {
    "checkpoint_id": samples.CP,
    "runtime": RUNTIME,
    "parent_checkpoint_id": None,
    "created_at_ms": samples.AT_MS,
    "name": "base",
    "metadata": {},
    "reused": True,
    "checkpoint": CHECKPOINT,
    "timings": TIMINGS,
}
FORKED = {
    "checkpoint_id": samples.CP,
    "source_runtime_id": samples.RT,
    "runtime": samples.runtime(runtime_id=samples.KID, name="kid").model_dump(mode="json"),
    "timings": TIMINGS,
}


async def test_a_request_carries_the_token_and_goes_below_the_base_url(face: Face) -> None:
    script = Script(
        **{"GET health": {"version": "1", "store": "/s", "started_at_ms": 1, "live_runtimes": 2, "held_snapshots": 3}}
    )
    health = await face(face.client(script).health())
    assert health.live_runtimes == 2
    assert str(script.requests[0].url) == f"{URL}/api/v1/health"
    assert script.requests[0].headers["Authorization"] == f"Bearer {TOKEN}"


async def test_without_a_token_none_is_sent(face: Face) -> None:
    script = Script(**{"GET runtimes": {"runtimes": []}})
    await face(face.client(script, Endpoint(URL, "")).runtimes.list())
    assert "Authorization" not in script.requests[0].headers


async def test_create_sends_what_was_asked(face: Face) -> None:
    script = Script(**{"POST runtimes": CREATED})
    made = await face(
        face.client(script).runtimes.create(
            name="exp", env={"A": "1"}, cwd="/w", limits={"memory_mb": 64}, metadata={"k": [1]}, exist_ok=True
        )
    )
    assert script.bodies == [
        {
            "name": "exp",
            "python": sys.executable,
            "env": {"A": "1"},
            "cwd": "/w",
            "limits": {"memory_mb": 64},
            "metadata": {"k": [1]},
            "exist_ok": True,
        }
    ]
    assert (made.id, made.name, made.status, made.created) == (samples.RT, "exp", "idle", True)
    assert made.timings == samples.TIMINGS


@pytest.mark.parametrize(
    ("endpoint", "arguments", "python"),
    [
        (Endpoint(URL, TOKEN), {}, sys.executable),
        (Endpoint(URL, TOKEN), {"python": "/p"}, "/p"),
        (Endpoint(URL, TOKEN), {"engine": "docker"}, None),
        (Endpoint(URL, TOKEN), {"attach_to": "exp"}, None),
        (Endpoint("http://elsewhere.example", TOKEN), {}, None),
    ],
)
async def test_python_is_this_one_only_where_that_means_something(
    face: Face, endpoint: Endpoint, arguments: dict[str, str], python: str | None
) -> None:
    script = Script(**{"POST runtimes": CREATED})
    await face(face.client(script, endpoint).runtimes.create(**arguments))
    assert script.bodies[0].get("python") == python


async def test_a_wrong_field_is_refused_before_anything_is_sent(face: Face) -> None:
    script = Script()
    client = face.client(script)
    with pytest.raises(InvalidRequest, match="memory_mb") as caught:
        await face(client.runtimes.create(limits={"memory_mb": 1}))
    assert caught.value.context["field"] == "memory_mb"
    with pytest.raises(InvalidRequest, match="name"):
        await face(client.runtimes.create(name="no/slash"))
    with pytest.raises(InvalidRequest, match="empty"):
        await face(client.runtimes.get(""))
    assert script.requests == []


async def test_limits_may_be_the_record(face: Face) -> None:
    script = Script(**{"POST runtimes": CREATED})
    await face(face.client(script).runtimes.create(limits=Limits(cpus=1.5)))
    assert script.bodies[0]["limits"] == {"cpus": 1.5}


async def test_get_and_list(face: Face) -> None:
    script = Script(**{"GET runtimes/exp": RUNTIME, "GET runtimes": {"runtimes": [RUNTIME]}})
    client = face.client(script)
    found = await face(client.runtimes.get("exp"))
    assert (found.id, found.created, found.timings) == (samples.RT, False, None)
    listed = await face(client.runtimes.list(all=True))
    assert isinstance(listed, RuntimesView)
    assert [item.id for item in listed] == [samples.RT]
    assert script.requests[1].url.query == b"all=1"


async def test_names_cannot_reach_another_route(face: Face) -> None:
    script = Script(**{"GET runtimes/%2E%2E": RUNTIME, "GET runtimes/a%2Fb%3Fc%23": RUNTIME})
    client = face.client(script)
    await face(client.runtimes.get(".."))
    await face(client.runtimes.get("a/b?c#"))
    assert len(script.requests) == 2


async def test_checkpoint(face: Face) -> None:
    script = Script(**{"POST sandboxes/exp/checkpoint": CHECKPOINTED})
    made = await face(face.client(script).checkpoint("exp", "base", rebind=True, pin=True, metadata={"a": 1}))
    assert script.bodies == [{"checkpoint": "base", "pin": True, "metadata": {"a": 1}, "rebind": True}]
    assert isinstance(made, Checkpoint)
    assert (made.id, made.name, made.reused, made.timings) == (samples.CP, "base", True, samples.TIMINGS)


async def test_fork_returns_the_child(face: Face) -> None:
    script = Script(**{"POST sandboxes/base/fork": FORKED})
    kid = await face(face.client(script).fork("base", "kid", rebind=True, reseed=False))
    assert script.bodies == [{"name": "kid", "rebind": True, "reseed": False}]
    assert (kid.id, kid.name, kid.created, kid.timings) == (samples.KID, "kid", True, samples.TIMINGS)


async def test_checkout_looks_a_name_up_first(face: Face) -> None:
    done = {"checkpoint_id": samples.CP, "source_runtime_id": samples.RT, "timings": TIMINGS}
    script = Script(
        **{
            "GET checkpoints/base": CHECKPOINT,
            "POST runtimes/checkout": done | {"runtime": FORKED["runtime"]},
            f"GET runtimes/{samples.KID}": FORKED["runtime"],
        }
    )
    client = face.client(script)
    kid = await face(client.checkout("base", "kid", allow_busy_source=True, sender_id="s"))
    assert script.routes == ["GET checkpoints/base", "POST runtimes/checkout", f"GET runtimes/{samples.KID}"]
    assert script.bodies[1] == {"checkpoint_id": samples.CP, "name": "kid", "allow_busy_source": True, "sender_id": "s"}
    assert (kid.name, kid.timings) == ("kid", samples.TIMINGS)
    await face(client.checkout(samples.CP))
    assert script.routes[3:] == ["POST runtimes/checkout", f"GET runtimes/{samples.KID}"]


async def test_checkpoints_of_all_kinds(face: Face) -> None:
    deleted = {"checkpoint": CHECKPOINT, "deleted_at_ms": 1}
    script = Script(
        **{
            "GET checkpoints": {"checkpoints": [CHECKPOINT]},
            "GET checkpoints/base": CHECKPOINT,
            "DELETE checkpoints/base": deleted,
            "PUT checkpoints/base/pin": CHECKPOINT | {"pinned": True},
            "POST checkpoints/prune": {"deleted": ["a", "b"]},
        }
    )
    client = face.client(script)
    listed = await face(client.checkpoints(all=True))
    assert isinstance(listed, Checkpoints)
    assert [c.name for c in listed] == ["base"]
    assert (await face(client.get_checkpoint("base"))).id == samples.CP
    assert (await face(client.pin("base", False))).record.pinned
    assert script.bodies[-1] == {"pinned": False}
    assert (await face(client.delete_checkpoint("base"))).name == "base"
    assert await face(client.prune()) == ("a", "b")


async def test_delete_snapshot(face: Face) -> None:
    answer = {
        "checkpoint_id": samples.CP,
        "runtime_id": samples.RT,
        "provider": "fork",
        "provider_snapshot_id": "s",
        "deleted_provider_snapshot": True,
        "deleted_at_ms": 2,
    }
    script = Script(**{"GET checkpoints/base": CHECKPOINT, "POST runtimes/checkpoint/delete-snapshot": answer})
    done = await face(face.client(script).delete_snapshot("base"))
    assert done.deleted_provider_snapshot
    assert script.bodies[1] == {"checkpoint_id": samples.CP}


async def test_views(face: Face) -> None:
    script = Script(
        **{
            "GET lineage": {"nodes": [samples.node("runtime", samples.RT, None).model_dump(mode="json")]},
            "GET latency": {"rows": [samples.latency_row().model_dump(mode="json")]},
            "GET engines": {"engines": [samples.engine().model_dump(mode="json")]},
        }
    )
    client = face.client(script)
    lineage = await face(client.lineage(all=False))
    latency = await face(client.latency(since_ms=5))
    engines = await face(client.engines())
    assert isinstance(lineage, LineageView)
    assert lineage[0].id == samples.RT
    assert isinstance(latency, LatencyView)
    assert latency[0].n == 7
    assert engines[0].name == "fork"
    assert [r.url.query for r in script.requests] == [b"all=0", b"since_ms=5", b""]


async def test_an_answer_of_another_version_is_said_to_be_one(face: Face) -> None:
    script = Script(**{"GET runtimes": {"runtimes": [{"surprise": 1}]}})
    with pytest.raises(SandboxError, match="does not fit this version"):
        await face(face.client(script).runtimes.list())


async def test_repr_tells_the_server_and_hides_the_token(face: Face) -> None:
    client = face.client(Script())
    assert URL in repr(client)
    assert TOKEN not in repr(client)
    assert TOKEN not in repr(client.endpoint)


async def test_a_client_is_a_context_manager() -> None:
    from jupyter_sandbox.client import AsyncClient, Client

    with Client(Endpoint(URL, TOKEN)) as client:
        http = client._connection._client()
    assert http.is_closed
    async with AsyncClient(Endpoint(URL, TOKEN)) as other:
        ahttp = other._connection._client()
    assert ahttp.is_closed
