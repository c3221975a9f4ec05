"""Bad input over HTTP, against a real Jupyter server: a clear error of our shape, and nothing lost."""

from __future__ import annotations

import threading

import pytest


def error(answer, status, code):
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"code", "message", "remedy", "context"}
    assert body["code"] == code
    assert "Traceback" not in answer.text
    return body


@pytest.fixture
def runtime(jupyter_server_process):
    answer = jupyter_server_process.post("runtimes", name="exp")
    assert answer.status_code == 200, answer.text
    return answer.json()["runtime"]["runtime_id"]


RUNTIME = "rt_" + "0" * 32
CHECKPOINT = "cp_" + "0" * 32


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("runtimes/checkpoint", {"runtime_id": RUNTIME}, "RuntimeNotFound"),
        ("runtimes/pause", {"runtime_id": RUNTIME}, "RuntimeNotFound"),
        ("runtimes/resume", {"runtime_id": RUNTIME}, "RuntimeNotFound"),
        ("runtimes/close", {"runtime_id": RUNTIME}, "RuntimeNotFound"),
        ("runtimes/checkout", {"checkpoint_id": CHECKPOINT}, "CheckpointNotFound"),
        ("runtimes/checkpoint/delete-snapshot", {"checkpoint_id": CHECKPOINT}, "CheckpointNotFound"),
        (f"runtimes/{RUNTIME}/cells", {"code": "1"}, "RuntimeNotFound"),
        (f"runtimes/{RUNTIME}/exec", {"shell": "true"}, "RuntimeNotFound"),
        (f"runtimes/{RUNTIME}/export", {}, "RuntimeNotFound"),
    ],
)
def test_unknown_ids_are_named(jupyter_server_process, path, body, code):
    body = error(jupyter_server_process.post(path, **body), 404, code)
    assert RUNTIME in body["message"] or CHECKPOINT in body["message"]


def test_an_unknown_engine_lists_those_there_are(jupyter_server_process):
    body = error(jupyter_server_process.post("runtimes", engine="teleport"), 404, "EngineNotFound")
    assert "teleport" in body["message"]
    assert "fork" in body["message"] + body["remedy"] + str(body["context"])


def test_a_checkpoint_of_a_busy_runtime_names_the_operation_and_loses_nothing(jupyter_server_process, runtime):
    server = jupyter_server_process
    with (
        server.client() as client,
        client.stream(
            "POST", f"runtimes/{runtime}/cells", json={"code": "print('up', flush=True)\nimport time; time.sleep(60)"}
        ) as cell,
    ):
        lines = cell.iter_lines()
        next(lines)
        for path in ("runtimes/checkpoint", "runtimes/pause"):
            body = error(server.post(path, runtime_id=runtime), 409, "SessionBusy")
            assert "cell" in body["message"]
            assert body["context"]["operation"]
            assert "interrupt" in body["remedy"].lower()
        error(server.post("sandboxes/exp/fork", name="kid"), 409, "SessionBusy")
        server.post(f"runtimes/{runtime}/interrupt").raise_for_status()
        assert '"error"' in list(lines)[-1]
    assert server.post("runtimes/checkpoint", runtime_id=runtime).status_code == 200


@pytest.mark.parametrize("path", ["runtimes", "runtimes/checkpoint"])
def test_a_used_name_is_taken_by_whatever_holds_it(jupyter_server_process, runtime, path):
    server = jupyter_server_process
    server.post("runtimes/checkpoint", runtime_id=runtime, name="base").raise_for_status()
    body = {} if path == "runtimes" else {"runtime_id": runtime}
    for name in ("exp", "base"):
        assert name in error(server.post(path, name=name, **body), 409, "NameTaken")["message"]


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"{not json", "body"),
        (b"[]", "body"),
        (b"\xff\xfe", "body"),
        (b'{"name": 7}', "name"),
        (b'{"name": "with space"}', "name"),
        (b'{"name": "a/b"}', "name"),
        (b'{"name": "a\\nb"}', "name"),
        (b'{"name": "<img src=x onerror=alert(1)>"}', "name"),
        (b'{"name": "' + b"x" * 300 + b'"}', "name"),
        (b'{"name": "cp_' + b"0" * 32 + b'"}', "name"),
        (b'{"surprise": 1}', "surprise"),
        (b'{"limits": {"memory_mb": "much"}}', "limits.memory_mb"),
        (b'{"limits": {"cpus": 2}}', "limits.cpus"),
        (b'{"env": {"A": 1}}', "env.A"),
        (b'{"python": "/nowhere"}', "python"),
        (b'{"cwd": "/nowhere"}', "cwd"),
    ],
)
def test_a_bad_body_is_400_with_the_field(jupyter_server_process, content, field):
    with jupyter_server_process.client() as client:
        body = error(client.post("runtimes", content=content), 400, "InvalidRequest")
    assert body["context"].get("field") == field
    assert jupyter_server_process.get("runtimes").json()["runtimes"] == []


@pytest.mark.parametrize("bad_id", ["nonsense", "rt_" + "0" * 31, "RT_" + "0" * 32, "rt_" + "0" * 32 + "\n", "../x"])
def test_an_id_of_another_shape_is_400(jupyter_server_process, bad_id):
    body = error(jupyter_server_process.post("runtimes/pause", runtime_id=bad_id), 400, "InvalidRequest")
    assert body["context"]["field"] == "runtime_id"


@pytest.mark.parametrize("path", ["../secret", "..%2fsecret", "%2e%2e/secret", "/etc/passwd", "a%00b", "link/passwd"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_no_path_leads_out_of_a_runtime(jupyter_server_process, runtime, method, path):
    server = jupyter_server_process
    with server.client() as client:
        client.post(f"runtimes/{runtime}/exec", json={"shell": "ln -sfn /etc link; echo secret > ../secret"}).read()
        answer = client.request(method, f"runtimes/{runtime}/files/{path}", content=b"x" if method == "PUT" else None)
    assert answer.status_code in {400, 403, 404, 405}, answer.text
    assert set(answer.json()) == {"code", "message", "remedy", "context"}
    assert "root:" not in answer.text
    with server.client() as client:
        shown = client.post(f"runtimes/{runtime}/exec", json={"shell": "cat ../secret"}).text
    assert "secret" in shown


def test_steps_that_the_status_does_not_have(jupyter_server_process, runtime):
    server = jupyter_server_process
    error(server.post("runtimes/resume", runtime_id=runtime), 409, "WrongStatus")
    server.post("runtimes/pause", runtime_id=runtime).raise_for_status()
    error(server.post("runtimes/pause", runtime_id=runtime), 409, "WrongStatus")
    error(server.post("runtimes/checkpoint", runtime_id=runtime), 409, "WrongStatus")
    error(server.post(f"runtimes/{runtime}/cells", code="1"), 409, "WrongStatus")
    server.post("runtimes/close", runtime_id=runtime).raise_for_status()
    server.post("runtimes/close", runtime_id=runtime).raise_for_status()
    body = error(server.post(f"runtimes/{runtime}/exec", shell="true"), 409, "WrongStatus")
    assert "closed" in body["message"]


def test_a_checkpoint_whose_snapshot_was_deleted_says_so(jupyter_server_process, runtime):
    server = jupyter_server_process
    taken = server.post("runtimes/checkpoint", runtime_id=runtime, name="base").json()["checkpoint_id"]
    first = server.post("runtimes/checkpoint/delete-snapshot", checkpoint_id=taken).json()
    again = server.post("runtimes/checkpoint/delete-snapshot", checkpoint_id=taken).json()
    assert first["deleted_provider_snapshot"] in {True, False}
    assert again["provider_snapshot_id"] is None
    error(server.post("runtimes/checkout", checkpoint_id=taken), 409, "SnapshotDeleted")
    assert server.get("checkpoints/base").json()["state"] == "snapshot_deleted"


def test_many_clients_at_once_see_one_winner(jupyter_server_process, runtime):
    server = jupyter_server_process
    codes = []

    def take() -> None:
        codes.append(server.post("runtimes/checkpoint", runtime_id=runtime, name="same").status_code)

    threads = [threading.Thread(target=take) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(set(codes)) == [200, 409]
    assert codes.count(200) == 1
    assert [c["name"] for c in server.get("checkpoints").json()["checkpoints"]] == ["same"]
