"""The order of the search, each step against real little servers."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jupyter_sandbox.client import Origin, connect, connect_async, discovery
from jupyter_sandbox.client.endpoint import Endpoint
from jupyter_sandbox.errors import InvalidRequest, ServerUnavailable, Unauthorized
from jupyter_sandbox.models import now_ms
from jupyter_sandbox.rendezvous import ServerInfo, write_server_info

HEALTH = {"version": "1", "store": "/s", "started_at_ms": 1, "live_runtimes": 0, "held_snapshots": 0}


class Server:
    """Answers ``/api/v1/health`` to one token; without ``ours``, as a Jupyter server without our extension."""

    def __init__(self, token: str, *, ours: bool = True) -> None:
        self.token = token
        seen = self.seen = []  # type: list[str]

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append(self.path)
                right = self.headers["Authorization"] == f"Bearer {token}"
                status = 404 if not ours else 200 if right else 401
                body = json.dumps(HEALTH if status == 200 else {"message": "no"}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/base"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def write_info(self, store: Path) -> None:
        write_server_info(store, ServerInfo(url=self.url, token=self.token, pid=1, started_at_ms=now_ms()))

    def write_runtime_file(self, pid: int) -> None:
        directory = Path(os.environ["JUPYTER_RUNTIME_DIR"])
        directory.mkdir(parents=True, exist_ok=True)
        info = {"url": f"{self.url}/", "token": self.token, "pid": pid}
        (directory / f"jpserver-{pid}.json").write_text(json.dumps(info))


@contextmanager
def serving(token: str = "t", **options: bool) -> Iterator[Server]:
    server = Server(token, **options)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def store(own_directories: Path) -> Path:
    return own_directories / "store"


@pytest.fixture(autouse=True)
def no_private_server(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Instead of starting one: which stores one was started for."""
    started: list[Path] = []

    def start(store: Path, up: Any) -> Endpoint:
        started.append(store)
        server = Server("private")
        try:
            server.write_info(store)
            found = up()
        finally:
            server.close()
        assert found is not None
        return found

    monkeypatch.setattr(discovery, "start_private_server", start)
    return started


def dead_url() -> str:
    with serving() as server:
        return server.url


def test_what_the_caller_names_wins_over_everything(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("mine") as mine, serving() as other:
        monkeypatch.setenv("JUPYTER_SANDBOX_URL", other.url)
        other.write_info(store)
        found = discovery.find(f"{mine.url}/", "mine")
        assert found == Endpoint(mine.url, "mine", Origin.explicit)
        assert (mine.seen, other.seen) == (["/base/api/v1/health"], [])
        assert discovery.find(f"{mine.url}/?token=mine") == found


def test_what_the_caller_names_and_is_not_there_is_an_error(store: Path, no_private_server: list[Path]) -> None:
    with serving() as other:
        other.write_info(store)
        with pytest.raises(ServerUnavailable, match="cannot be reached"):
            discovery.find(dead_url(), "t")
        with pytest.raises(Unauthorized, match="did not accept the token"):
            discovery.find(other.url, "wrong")
        with pytest.raises(InvalidRequest, match="not the URL"):
            discovery.find("nonsense")
    assert no_private_server == []


def test_a_token_is_only_looked_up_for_the_url_it_belongs_to(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("stored") as server:
        server.write_info(store)
        assert discovery.find(server.url).token == "stored"
    monkeypatch.setenv("JUPYTER_SANDBOX_TOKEN", "secret")
    assert discovery.named("http://127.0.0.1:1").token == "secret"
    monkeypatch.setenv("JUPYTER_SANDBOX_URL", "http://127.0.0.1:1/")
    assert discovery.named("http://127.0.0.1:1").token == "secret"
    assert discovery.named("http://stranger.example").token == ""


def test_then_the_environment(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("env") as env, serving("own") as own, serving("store") as stored:
        stored.write_info(store)
        own.write_runtime_file(4711)
        monkeypatch.setenv("JPY_PARENT_PID", "4711")
        monkeypatch.setenv("JUPYTER_SANDBOX_URL", env.url)
        monkeypatch.setenv("JUPYTER_SANDBOX_TOKEN", "env")
        assert discovery.find() == Endpoint(env.url, "env", Origin.environment, store)
        assert own.seen == stored.seen == []


def test_then_the_server_that_started_this_kernel(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("own") as own, serving("stranger") as stranger, serving("store") as stored:
        stored.write_info(store)
        own.write_runtime_file(4711)
        stranger.write_runtime_file(1)
        monkeypatch.setenv("JPY_PARENT_PID", "4711")
        assert discovery.find() == Endpoint(own.url, "own", Origin.kernel, store)
        assert stranger.seen == []


def test_then_the_server_that_holds_the_store(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("own", ours=False) as own, serving("stranger") as stranger, serving("store") as stored:
        stored.write_info(store)
        own.write_runtime_file(4711)
        stranger.write_runtime_file(1)
        expected = Endpoint(stored.url, "store", Origin.store, store)
        assert discovery.find() == expected
        monkeypatch.setenv("JPY_PARENT_PID", "4711")
        assert discovery.find() == expected
        assert own.seen
        assert stranger.seen == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"url": 3}', '{"url": "unix:x"}', "{}"])
def test_a_runtime_file_that_is_not_whole_is_no_server(
    store: Path, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        server.write_runtime_file(4711)
    (Path(os.environ["JUPYTER_RUNTIME_DIR"]) / "jpserver-4711.json").write_text(content)
    monkeypatch.setenv("JPY_PARENT_PID", "4711")
    assert discovery.from_kernel_parent(store) is None
    monkeypatch.setenv("JPY_PARENT_PID", "../../x")
    assert discovery.from_kernel_parent(store) is None


def test_last_a_private_one_never_a_stranger(store: Path, no_private_server: list[Path]) -> None:
    with serving() as stranger:
        stranger.write_runtime_file(1)
        found = discovery.find()
        assert (found.token, found.origin, found.store) == ("private", Origin.private, store)
        assert no_private_server == [store]
        assert stranger.seen == []


def test_a_stale_name_in_the_store_is_not_believed(store: Path, no_private_server: list[Path]) -> None:
    with serving() as gone:
        gone.write_info(store)
    assert discovery.find().origin is Origin.private
    assert no_private_server == [store]


def test_an_inherited_url_that_went_stale_is_replaced(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_SANDBOX_URL", dead_url())
    with serving("new") as new:
        new.write_info(store)
        assert discovery.find() == Endpoint(new.url, "new", Origin.store, store)
        monkeypatch.setenv("JUPYTER_SANDBOX_URL", new.url)
        monkeypatch.setenv("JUPYTER_SANDBOX_TOKEN", "stale")
        assert discovery.find() == Endpoint(new.url, "new", Origin.store, store)


def test_a_url_in_the_environment_is_never_answered_by_a_private_server(
    store: Path, monkeypatch: pytest.MonkeyPatch, no_private_server: list[Path]
) -> None:
    monkeypatch.setenv("JUPYTER_SANDBOX_URL", dead_url())
    with pytest.raises(ServerUnavailable, match="JUPYTER_SANDBOX_URL names this server"):
        discovery.find()
    assert no_private_server == []


def test_the_successor_is_the_one_in_the_store(store: Path, no_private_server: list[Path]) -> None:
    with serving("new") as new:
        new.write_info(store)
        for origin in (Origin.environment, Origin.kernel, Origin.store):
            before = Endpoint(dead_url(), "old", origin, store)
            assert discovery.successor(before, gone=True) == Endpoint(new.url, "new", origin, store)
        explicit = Endpoint(dead_url(), "old", Origin.explicit)
        assert discovery.successor(explicit, gone=True) is None
        same = Endpoint(new.url, "new", Origin.store, store)
        assert discovery.successor(same, gone=True) is None
        assert discovery.successor(Endpoint(new.url, "old", Origin.kernel, store), gone=False).token == "new"
    assert discovery.successor(Endpoint(dead_url(), "old", Origin.store, store), gone=True) is None
    assert no_private_server == []


def test_a_private_server_that_ended_is_started_again(store: Path, no_private_server: list[Path]) -> None:
    before = Endpoint(dead_url(), "private", Origin.private, store)
    assert discovery.successor(before, gone=False) is None
    after = discovery.successor(before, gone=True)
    assert after is not None
    assert after.origin is Origin.private
    assert no_private_server == [store]


async def test_both_connects_search_the_same_way(store: Path) -> None:
    with serving("store") as stored:
        stored.write_info(store)
        async with await connect_async() as client:
            assert client.endpoint.origin is Origin.store
            assert (await client.health()).version == "1"
        with connect() as sync_client:
            assert sync_client.endpoint == client.endpoint
        with connect(stored.url, "store") as named:
            assert named.endpoint.origin is Origin.explicit
