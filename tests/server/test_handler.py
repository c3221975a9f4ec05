from __future__ import annotations

import asyncio
import json
import re
from itertools import product
from urllib.parse import quote

import httpx
import pytest

from jupyter_sandbox.errors import ProviderError
from jupyter_sandbox.models import CellDone, CellOutput
from jupyter_sandbox.server.routes import ROUTES
from tests.server.conftest import JUPYTER_TOKEN

NO_RUNTIME = f"rt_{'0' * 32}"
NO_CHECKPOINT = f"cp_{'0' * 32}"


def error(answer: httpx.Response, status: int, code: str) -> dict:
    """The body of an error of ours."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"code", "message", "remedy", "context"}
    assert body["code"] == code
    assert "Traceback" not in answer.text
    return body


async def raw(server, request: str, *, body: bytes = b"") -> tuple[int, dict]:
    """One request exactly as written, which no client library has tidied."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request.replace("\n", "\r\n").encode("latin-1") + b"\r\n\r\n" + body)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, content = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(content or b"{}")


# -- who may ask


@pytest.mark.parametrize("allow_unauthenticated", [True, False])
async def test_nothing_answers_without_a_token(serve, allow_unauthenticated):
    server = await serve(ServerApp={"allow_unauthenticated_access": allow_unauthenticated})
    stranger = await server.stranger()
    asked = [(route.method, route.path.replace("{ref}", "x").replace("{path}", "y")) for route in ROUTES]
    asked += product(["GET", "POST", "PUT", "PATCH", "DELETE"], ["runtimes/x/nothing", "elsewhere", ""])
    for method, path in asked:
        answer = await stranger.request(method, path)
        error(answer, 401, "Unauthorized")
        assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("allow_unauthenticated", [True, False])
async def test_a_wrong_token_is_told_so(serve, allow_unauthenticated):
    server = await serve(ServerApp={"allow_unauthenticated_access": allow_unauthenticated})
    for header, method in product(["Bearer wrong", "token wrong", "Basic eDp5", ""], ["GET", "POST", "DELETE"]):
        stranger = await server.stranger(headers={"Authorization": header})
        answer = await stranger.request(method, "runtimes")
        error(answer, 401, "Unauthorized")
        assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_jupyters_token_opens_our_api(server):
    for scheme in ("Bearer", "token"):
        client = await server.stranger(headers={"Authorization": f"{scheme} {JUPYTER_TOKEN}"})
        assert (await client.get("health")).status_code == 200
        assert (await client.post("checkpoints/prune")).status_code == 200  # no XSRF token is needed


async def test_the_stores_token_opens_our_api_and_nothing_else(server):
    client = await server.stranger(headers={"Authorization": f"Bearer {server.store_token}"})
    answer = await client.post("checkpoints/prune")
    assert answer.status_code == 200
    assert "Set-Cookie" not in answer.headers
    for path in ("/api/contents", "/api/kernels", "/api/status"):
        refused = await client.get(f"{server.url}{path}")
        assert refused.status_code in {401, 403}, path
    assert (await client.post(f"{server.url}/api/shutdown")).status_code in {401, 403}


async def test_the_stores_token_is_not_taken_from_the_query(server):
    stranger = await server.stranger()
    error(await stranger.get("health", params={"token": server.store_token}), 401, "Unauthorized")
    assert (await stranger.get("health", params={"token": JUPYTER_TOKEN})).status_code == 200  # as Jupyter does


async def test_the_stores_token_needs_no_leave_of_the_servers_own_authorizer(serve):
    server = await serve(ServerApp={"authorizer_class": "tests.server.authorizers.Nobody"})
    error(await server.client.get("health"), 403, "Forbidden")
    client = await server.stranger(headers={"Authorization": f"Bearer {server.store_token}"})
    assert (await client.get("health")).status_code == 200


async def signed_in(server) -> httpx.AsyncClient:
    """A client with the cookies of a browser that logged in, and no token."""
    browser = await server.stranger(follow_redirects=True)
    page = await browser.get(f"{server.url}/login")
    xsrf = re.search(r'name="_xsrf" value="([^"]+)"', page.text)
    form = {"password": JUPYTER_TOKEN, "_xsrf": xsrf.group(1) if xsrf else ""}
    await browser.post(f"{server.url}/login", data=form, follow_redirects=False)
    return browser


async def test_a_cookie_alone_cannot_change_anything(server):
    browser = await signed_in(server)
    assert (await browser.get("health")).status_code == 200
    error(await browser.post("runtimes", json={"engine": "toy"}), 403, "Forbidden")
    xsrf = {"X-XSRFToken": browser.cookies["_xsrf"]}
    assert (await browser.post("runtimes", json={"engine": "toy"}, headers=xsrf)).status_code == 200


async def test_another_sites_page_cannot_use_the_cookie(server):
    browser = await signed_in(server)
    for origin in ("http://evil.example", f"http://127.0.0.1:{server.port}.evil.example", "null"):
        headers = {"X-XSRFToken": browser.cookies["_xsrf"], "Origin": origin}
        error(await browser.get("health", headers={"Origin": origin}), 404, "NotFound")
        error(await browser.post("runtimes", json={"engine": "toy"}, headers=headers), 404, "NotFound")
    assert (await server.client.get("runtimes")).json() == {"runtimes": []}


async def test_a_name_that_is_not_this_machines_is_refused(server):
    hosts = ("evil.example", "127.0.0.1.evil.example:80")
    for host, token in product(hosts, (JUPYTER_TOKEN, server.store_token)):
        client = await server.stranger(headers={"Authorization": f"Bearer {token}", "Host": host})
        error(await client.get("health"), 403, "Forbidden")


async def test_a_preflight_request_needs_no_token(server):
    assert (await (await server.stranger()).options("runtimes")).status_code == 200


async def test_no_token_gets_into_the_log(server, caplog):
    for log in (server.app.log, server.extension.log):
        caplog.set_level("DEBUG", logger=log.name)
    server.app.log.propagate = True
    wrong = "a-wrong-token-1234567890"
    stranger = await server.stranger(headers={"Authorization": f"Bearer {wrong}"})
    await stranger.get("health", params={"token": wrong})
    await stranger.get("runtimes", headers={"Authorization": f"Bearer {server.store_token}"})
    server.engine.fail("probe", RuntimeError("a bug"))
    await (await server.stranger()).get("engines", params={"token": JUPYTER_TOKEN})
    assert "a bug" in caplog.text
    for secret in (wrong, server.store_token, JUPYTER_TOKEN):
        assert secret not in caplog.text


async def test_a_refusal_reaches_a_caller_that_is_still_sending(server):
    body = b"x" * 5_000_000
    stranger = await server.stranger()
    error(await stranger.put("runtimes/x/files/f", content=body), 401, "Unauthorized")
    error(await stranger.post("runtimes", content=body, headers={"Host": "evil.example"}), 403, "Forbidden")
    error(await server.client.post("nothing", content=body), 404, "NotFound")
    error(await server.client.put("runtimes", content=body), 405, "MethodNotAllowed")
    browser = await signed_in(server)
    error(await browser.put("runtimes/x/files/f", content=body), 403, "Forbidden")


# -- what is asked


async def test_an_unknown_path_is_told_in_our_shape(server):
    for path in ("runtimes/x/nothing", "checkpoints/x/y", "sandboxes", "nothing", "restore", ""):
        error(await server.client.get(path), 404, "NotFound")


async def test_a_method_that_a_path_lacks_is_refused_with_those_it_has(server):
    answer = await server.client.delete("runtimes")
    assert error(answer, 405, "MethodNotAllowed")["context"]["allow"] == ["GET", "POST"]
    assert answer.headers["Allow"] == "GET, POST"


UNKNOWN = [
    ("GET", f"runtimes/{NO_RUNTIME}", None, NO_RUNTIME),
    ("GET", "runtimes/nobody", None, "nobody"),
    ("PATCH", "runtimes/nobody", {}, "nobody"),
    ("POST", "runtimes/checkpoint", {"runtime_id": NO_RUNTIME}, NO_RUNTIME),
    ("POST", "runtimes/checkpoint/delete-snapshot", {"checkpoint_id": NO_CHECKPOINT}, NO_CHECKPOINT),
    ("POST", "runtimes/checkout", {"checkpoint_id": NO_CHECKPOINT}, NO_CHECKPOINT),
    ("POST", "runtimes/pause", {"runtime_id": NO_RUNTIME}, NO_RUNTIME),
    ("POST", "runtimes/resume", {"runtime_id": NO_RUNTIME}, NO_RUNTIME),
    ("POST", "runtimes/close", {"runtime_id": NO_RUNTIME}, NO_RUNTIME),
    ("POST", "runtimes/fork", {"session_id": NO_RUNTIME}, NO_RUNTIME),
    ("POST", "runtimes/nobody/attach", None, "nobody"),
    ("POST", "runtimes/nobody/cells", {"code": "1"}, "nobody"),
    ("POST", "runtimes/nobody/exec", {"shell": "true"}, "nobody"),
    ("POST", "runtimes/nobody/interrupt", None, "nobody"),
    ("POST", "runtimes/nobody/complete", {"code": "1"}, "nobody"),
    ("POST", "runtimes/nobody/search", {}, "nobody"),
    ("POST", "runtimes/nobody/export", {}, "nobody"),
    ("POST", "runtimes/nobody/mkdir", {"path": "x"}, "nobody"),
    ("POST", "runtimes/nobody/temp-path", {}, "nobody"),
    ("POST", "runtimes/nobody/stat", {"path": "x"}, "nobody"),
    ("GET", "runtimes/nobody/files/x", None, "nobody"),
    ("PUT", "runtimes/nobody/files/x", None, "nobody"),
    ("DELETE", "runtimes/nobody/files/x", None, "nobody"),
    ("POST", "sandboxes/nobody/checkpoint", {}, "nobody"),
    ("POST", "sandboxes/nobody/fork", {}, "nobody"),
    ("GET", "checkpoints/nobody", None, "nobody"),
    ("DELETE", "checkpoints/nobody", None, "nobody"),
    ("PUT", "checkpoints/nobody/pin", {"pinned": True}, "nobody"),
]


async def test_an_unknown_id_is_named(server):
    for method, path, body, named in UNKNOWN:
        answer = await server.client.request(method, path, json=body)
        assert answer.status_code == 404, path
        assert answer.json()["code"].endswith("NotFound")
        assert named in answer.json()["message"]


BAD_BODIES = [
    (b"{", "body"),
    (b"[1]", "body"),
    (b"\xff\xfe", "body"),
    (b'{"name": 7}', "name"),
    (b'{"name": "../up"}', "name"),
    (b'{"limits": {"memory_mb": -1}}', "limits.memory_mb"),
    (b'{"enginee": "toy"}', "enginee"),
]


async def test_a_bad_body_is_refused_by_field(server):
    for body, field in BAD_BODIES:
        answer = await server.client.post("runtimes", content=body)
        assert error(answer, 400, "InvalidRequest")["context"]["field"] == field


async def test_an_unknown_parameter_is_refused_by_name(server):
    answer = await server.client.get("runtimes", params={"al": 1})
    assert error(answer, 400, "InvalidRequest")["context"]["field"] == "al"


async def test_a_body_where_none_belongs_is_refused(server):
    answer = await server.client.post("checkpoints/prune", json={"force": True})
    assert error(answer, 400, "InvalidRequest")["context"]["field"] == "force"


async def test_a_body_over_the_limit_is_refused(serve):
    server = await serve(SandboxExtension={"max_json_bytes": 1000, "max_file_bytes": 100_000})
    runtime = await server.create()
    padding = b'{"engine": "toy"%s}'
    assert (await server.client.post("runtimes", content=padding % (b" " * 983))).status_code == 200
    answer = await server.client.post("runtimes", content=padding % (b" " * 984))
    assert error(answer, 413, "TooLarge")["context"]["limit_bytes"] == 1000

    async def in_pieces():
        for _ in range(20):
            yield b" " * 100

    error(await server.client.post("runtimes", content=in_pieces()), 413, "TooLarge")
    file = f"runtimes/{runtime}/files/f"
    assert (await server.client.put(file, content=b"x" * 100_000)).status_code == 204
    head = f"PUT /api/v1/{file} HTTP/1.1\nHost: 127.0.0.1\nAuthorization: Bearer {JUPYTER_TOKEN}\nConnection: close"
    for length in ("100001", "9" * 30):
        status, body = await raw(server, f"{head}\nContent-Length: {length}")
        assert (status, body["code"]) == (413, "TooLarge")


# -- what is answered


async def test_conflicts_name_what_is_in_the_way(server):
    runtime = await server.create("taken")
    body = error(await server.client.post("runtimes", json={"engine": "toy", "name": "taken"}), 409, "NameTaken")
    assert "taken" in body["message"]
    gate = server.engine.hold("run_cell")
    cell = asyncio.create_task(server.client.post(f"runtimes/{runtime}/cells", json={"code": "1"}))
    await gate.entered.wait()
    body = error(await server.client.post("runtimes/checkpoint", json={"runtime_id": runtime}), 409, "SessionBusy")
    assert body["context"]["operation"]
    assert body["context"]["operation"] in body["message"]
    gate.open.set()
    assert (await cell).status_code == 200


async def test_the_life_of_a_runtime_over_http(server):
    ask = server.client
    runtime = await server.create("exp")
    await ask.post(f"runtimes/{runtime}/cells", json={"code": "x = 41"})
    taken = (await ask.post("runtimes/checkpoint", json={"runtime_id": runtime, "name": "base"})).json()
    assert {"checkpoint_id", "runtime", "parent_checkpoint_id", "created_at_ms", "name", "metadata", "reused"} <= {
        *taken
    }
    assert set(taken["runtime"]) == {
        *("runtime_id", "conversation_id", "sender_id", "status", "created_at_ms", "updated_at_ms")
    }
    child = (await ask.post("runtimes/checkout", json={"checkpoint_id": taken["checkpoint_id"]})).json()
    kid = child["runtime"]["runtime_id"]
    assert kid.startswith(f"{runtime}.")
    lines = (await ask.post(f"runtimes/{kid}/cells", json={"code": "print(x + 1)"})).text.splitlines()
    assert json.loads(lines[0])["output"]["text"] == "42\n"
    paused = (await ask.post("runtimes/pause", json={"runtime_id": kid})).json()
    assert paused["runtime"]["status"] == "paused"
    resumed = (await ask.post("runtimes/resume", json={"runtime_id": kid})).json()
    assert resumed["runtime"]["runtime_id"] == kid
    assert (await ask.post(f"runtimes/{kid}/attach")).json()["runtime"]["runtime_id"] == kid
    forked = (await ask.post("sandboxes/base/fork", json={"name": "second"})).json()
    assert forked["runtime"]["name"] == "second"
    assert (await ask.patch("runtimes/second", json={"name": "2nd"})).json()["name"] == "2nd"
    assert (await ask.put("checkpoints/base/pin", json={"pinned": True})).json()["pinned"]
    error(await ask.delete("checkpoints/base"), 409, "CheckpointPinned")
    await ask.put("checkpoints/base/pin", json={"pinned": False})
    for running in (runtime, kid, forked["runtime"]["runtime_id"]):
        closed = (await ask.post("runtimes/close", json={"runtime_id": running})).json()
        assert closed["runtime"]["status"] == "closed"
    assert (await ask.delete("checkpoints/base")).status_code == 200
    assert (await ask.get("runtimes")).json() == {"runtimes": []}
    assert len((await ask.get("runtimes?all=1")).json()["runtimes"]) == 3
    assert (await ask.get("lineage")).json()["nodes"]
    assert (await ask.get("latency")).json()["rows"]
    assert [e["name"] for e in (await ask.get("engines")).json()["engines"]] == ["toy"]
    assert (await ask.get("health")).json()["store"] == str(server.store_dir)


async def test_a_bug_is_logged_and_not_shown(server, caplog):
    server.app.log.propagate = True
    server.engine.fail("probe", RuntimeError("secret detail"))
    answer = await server.client.get("engines")
    error(answer, 500, "SandboxError")
    assert "secret" not in answer.text
    assert "secret detail" in caplog.text
    assert "Traceback" in caplog.text


async def test_a_file_comes_back_as_it_went(server):
    runtime = await server.create()
    data = bytes(range(256)) * 5000  # more than one piece
    for path in ("a.txt", "d/e/f.bin", "grüße 100%/a+b?#.txt", "..."):
        url = f"runtimes/{runtime}/files/{quote(path)}"
        assert (await server.client.put(url, content=data)).status_code == 204
        answer = await server.client.get(url)
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.content == data
        assert (await server.client.post(f"runtimes/{runtime}/stat", json={"path": path})).json()["size"] == len(data)
        assert (await server.client.delete(url)).status_code == 204
        error(await server.client.get(url), 404, "PathNotFound")


async def test_a_path_out_of_the_runtime_reaches_it_and_is_refused_there(server):
    runtime = await server.create()
    paths = ("../../../../etc/passwd", "%2e%2e/%2e%2e/x", "/etc/passwd", "%2Fetc%2Fpasswd")
    for path, method in product(paths, ("GET", "PUT", "DELETE")):
        status, body = await raw(
            server,
            f"{method} /api/v1/runtimes/{runtime}/files/{path} HTTP/1.1\nHost: 127.0.0.1\n"
            f"Authorization: Bearer {JUPYTER_TOKEN}\nContent-Length: 0\nConnection: close",
        )
        assert (status, body["code"], body["context"]["field"]) == (400, "InvalidRequest", "path")
        assert "leaves the runtime" in body["message"]


async def test_a_retried_request_is_done_once(server):
    key = {"Idempotency-Key": "k1"}
    first = await server.client.post("runtimes", json={"engine": "toy"}, headers=key)
    again = await server.client.post("runtimes", json={"engine": "toy"}, headers=key)
    assert again.json() == first.json()
    assert len((await server.client.get("runtimes")).json()["runtimes"]) == 1
    error(
        await server.client.post("runtimes", json={"engine": "toy", "name": "n"}, headers=key),
        422,
        "IdempotencyMismatch",
    )
    runtime = first.json()["runtime"]["runtime_id"]
    for _ in range(2):
        answer = await server.client.post(f"runtimes/{runtime}/interrupt", headers={"Idempotency-Key": "k2"})
        assert answer.status_code == 204
    for _ in range(2):
        answer = await server.client.delete("checkpoints/nobody", headers={"Idempotency-Key": "k3"})
        error(answer, 404, "CheckpointNotFound")
    bad = await server.client.post("runtimes", json={}, headers={"Idempotency-Key": "a b"})
    assert error(bad, 400, "InvalidRequest")["context"]["field"] == "Idempotency-Key"
    stream = await server.client.post(
        f"runtimes/{runtime}/cells", json={"code": "1"}, headers={"Idempotency-Key": "k4"}
    )
    assert error(stream, 400, "InvalidRequest")["context"]["field"] == "Idempotency-Key"


# -- streams


async def test_output_arrives_while_the_cell_runs(server):
    runtime = await server.create()
    code = "import asyncio\nevent = asyncio.Event()\nprint('first')\nawait event.wait()\nprint('second')"
    async with server.client.stream("POST", f"runtimes/{runtime}/cells", json={"code": code}) as answer:
        assert answer.status_code == 200
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        lines = answer.aiter_lines()
        assert CellOutput.model_validate_json(await anext(lines)).output["text"] == "first\n"
        (backend,) = server.engine.backends.values()
        backend.namespace["event"].set()
        assert CellOutput.model_validate_json(await anext(lines)).output["text"] == "second\n"
        assert CellDone.model_validate_json(await anext(lines)).status == "ok"


async def test_a_caller_that_goes_away_interrupts_its_cell(server):
    runtime = await server.create()
    code = "import asyncio\nprint('begun')\nawait asyncio.Event().wait()"
    async with server.client.stream("POST", f"runtimes/{runtime}/cells", json={"code": code}) as answer:
        lines = answer.aiter_lines()  # closed, and the connection with it, once nobody refers to it
        await anext(lines)
        assert (await server.client.get(f"runtimes/{runtime}")).json()["status"] == "running"
    while (await server.client.get(f"runtimes/{runtime}")).json()["status"] != "idle":
        await asyncio.sleep(0.01)
    assert server.extension.activity.under_way == 0


async def test_an_error_before_the_first_event_is_a_status(server):
    runtime = await server.create()
    server.engine.fail("run_cell", ProviderError("no"))
    error(await server.client.post(f"runtimes/{runtime}/cells", json={"code": "1"}), 502, "ProviderError")
    error(await server.client.post(f"runtimes/{runtime}/exec", json={"argv": ["/no/such"]}), 400, "InvalidRequest")
    error(await server.client.post(f"runtimes/{runtime}/export", json={"path": "nothing"}), 404, "PathNotFound")


async def test_a_runtime_that_dies_under_its_cell_ends_the_stream_with_a_failed_line(server):
    runtime = await server.create()
    code = "import asyncio\nprint('begun')\nawait asyncio.Event().wait()"
    async with server.client.stream("POST", f"runtimes/{runtime}/cells", json={"code": code}) as answer:
        lines = answer.aiter_lines()
        await anext(lines)
        (backend,) = server.engine.backends.values()
        backend.die("it was killed")
        failed = json.loads(await anext(lines))
        assert (failed["event"], failed["error"]["code"]) == ("failed", "RuntimeFailed")
        assert [line async for line in lines] == []


async def test_commands_and_exports_stream_too(server):
    runtime = await server.create()
    answer = await server.client.post(f"runtimes/{runtime}/exec", json={"shell": "echo hi; exit 3"})
    events = [json.loads(line) for line in answer.text.splitlines()]
    assert events[0]["text"] == "hi\n"
    assert events[-1]["exit_code"] == 3
    await server.client.put(f"runtimes/{runtime}/files/f", content=b"data")
    answer = await server.client.post(f"runtimes/{runtime}/export", json={})
    assert answer.headers["Content-Type"] == "application/x-tar"
    assert b"ustar" in answer.content


async def test_a_refusal_keeps_the_connection_for_the_next_request(server):
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for line in ("GET /api/v1/runtimes", "POST /api/v1/runtimes", "DELETE /api/v1/nothing", "GET /api/v1/health") * 5:
        writer.write(f"{line} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 0\r\n\r\n".encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        assert head.startswith(b"HTTP/1.1 401 ")
        (length,) = re.findall(rb"Content-Length: (\d+)", head)
        assert json.loads(await reader.readexactly(int(length)))["code"] == "Unauthorized"
    writer.close()
    await writer.wait_closed()


async def test_a_refusal_that_ends_the_connection_says_so(serve):
    server = await serve(SandboxExtension={"max_json_bytes": 1000, "max_file_bytes": 1000})
    answer = await server.client.post("runtimes", content=b"x" * 2000)
    assert (answer.status_code, answer.headers["Connection"]) == (413, "close")
