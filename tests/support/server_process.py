"""A real ``jupyter server`` process with a store of its own, which a test can stop, kill and start again."""

from __future__ import annotations

import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from jupyter_sandbox.rendezvous import store_token
from tests.support.environment import process_environment
from tests.support.processes import remove

START_S = 60.0
STOP_S = 30.0

# `python -m jupyter_server`, without an optional validator of jsonschema that takes most of the time to import.
_JUPYTER_SERVER = "import sys; sys.modules['rfc3987_syntax'] = None; from jupyter_server.serverapp import main; main()"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """One server on 127.0.0.1: the same port, token and directories at every start.

    Attributes:
        url: The base URL without a final slash.
        token: Jupyter's own token.
        store_dir: The store.
        log: The file that the server's output goes to.
    """

    def __init__(self, root: Path, *, base_url: str = "/", options: tuple[str, ...] = ()) -> None:
        self.root = root
        self.token = secrets.token_hex(16)
        self.store_dir = root / "store"
        self.work_dir = root / "work"
        self.log = root / "server.log"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}{base_url}".rstrip("/")
        self._base_url = base_url
        self._options = options
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until our API answers."""
        assert self.process is None, "it runs already"
        self.work_dir.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", _JUPYTER_SERVER, "--no-browser", "--allow-root"),
                    "--ServerApp.ip=127.0.0.1",
                    f"--ServerApp.port={self.port}",
                    "--ServerApp.port_retries=0",
                    f"--ServerApp.base_url={self._base_url}",
                    f"--ServerApp.root_dir={self.work_dir}",
                    "--ServerApp.allow_unauthenticated_access=False",
                    f"--IdentityProvider.token={self.token}",
                    *self._options,
                ],
                env=process_environment(self.root),
                cwd=self.work_dir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while True:
            try:
                if self.get("health").is_success:
                    return
            except httpx.TransportError:
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                pytest.fail(f"The server did not start:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.05)

    def stop(self) -> int:
        """End it in order (SIGTERM); the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """kill -9."""
        return self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        process, self.process = self.process, None
        assert process is not None, "it does not run"
        process.send_signal(number)
        try:
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            pytest.fail(f"The server did not end:\n{self.log.read_text()[-4000:]}")

    @property
    def store_token(self) -> str:
        """The token that kernels get."""
        return store_token(self.store_dir)

    def client(self, token: str | None = None) -> httpx.Client:
        """A client that signs in with Jupyter's token, or the one given."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return httpx.Client(base_url=f"{self.url}/api/v1/", headers=headers, trust_env=False, timeout=60)

    def get(self, path: str) -> httpx.Response:
        with self.client() as client:
            return client.get(path)

    def post(self, path: str, **body: object) -> httpx.Response:
        with self.client() as client:
            return client.post(path, json=body)

    def close_runtimes(self) -> None:
        """Close every runtime and delete every checkpoint, so that nothing of a test lives on."""
        with self.client() as client:
            for runtime in client.get("runtimes").json()["runtimes"]:
                client.post("runtimes/close", json={"runtime_id": runtime["runtime_id"]}).raise_for_status()
            for checkpoint in client.get("checkpoints?all=1").json()["checkpoints"]:
                client.put(f"checkpoints/{checkpoint['checkpoint_id']}/pin", json={"pinned": False}).raise_for_status()
                client.delete(f"checkpoints/{checkpoint['checkpoint_id']}").raise_for_status()

    def dispose(self) -> None:
        """End it and all that it made: an engine's keeper ends when its store is gone."""
        self.close_runtimes()
        self.stop()
        remove(self.store_dir)


@pytest.fixture(scope="session")
def shared_server_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    if server.process is None:
        server.start()
    server.dispose()


@pytest.fixture
def jupyter_server_process(shared_server_process: ServerProcess) -> Iterator[ServerProcess]:
    """A started server with nothing live in its store (closed runtimes stay listed); the test may stop and kill it.

    It is the same process for all tests that leave it running: starting one takes seconds.
    """
    if shared_server_process.process is None:
        shared_server_process.start()
        shared_server_process.close_runtimes()
    yield shared_server_process
    if shared_server_process.process is not None:
        shared_server_process.close_runtimes()
