"""Where servers and clients of one user meet: the store's directory, and the file in it that names the server.

The server that holds the store's lock writes ``server.json`` there; clients without a better hint read it.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from jupyter_core.paths import jupyter_data_dir

from jupyter_sandbox.models import Record, TimeMs

STORE_ENV = "JUPYTER_SANDBOX_STORE"
URL_ENV = "JUPYTER_SANDBOX_URL"
TOKEN_ENV = "JUPYTER_SANDBOX_TOKEN"  # noqa: S105 - the name of a variable


class ServerInfo(Record):
    """A server that answers our API: where, with which token, and which process it is.

    Attributes:
        url: The API's base, without ``/api/v1`` and without a final slash.
        token: Accepted on our API only.
        private: Whether it was started by a client and ends when nothing live remains in it.
    """

    url: str
    token: str
    pid: int
    private: bool = False
    started_at_ms: TimeMs


def default_store_dir() -> Path:
    """``$JUPYTER_SANDBOX_STORE``, else ``sandbox`` in Jupyter's data directory."""
    return Path(os.environ.get(STORE_ENV) or Path(jupyter_data_dir()) / "sandbox").expanduser().absolute()


def read_server_info(store_dir: Path) -> ServerInfo | None:
    """The server named in the store, or None when there is no (readable, whole) file; it may have ended since."""
    try:
        return ServerInfo.model_validate_json((store_dir / "server.json").read_bytes())
    except (OSError, ValueError):
        return None


def write_server_info(store_dir: Path, info: ServerInfo) -> None:
    """Name the server in the store; readable by its user only, never seen half written."""
    _write_private(store_dir / "server.json", info.model_dump_json())


def remove_server_info(store_dir: Path, pid: int) -> None:
    """Take back what ``pid`` wrote; another server's file stays."""
    info = read_server_info(store_dir)
    if info is not None and info.pid == pid:
        (store_dir / "server.json").unlink(missing_ok=True)


def store_token(store_dir: Path) -> str:
    """The store's own token, made on first use: kernels that outlive a server keep a token that still works."""
    path = store_dir / "token.json"
    if (token := _read_token(path)) is not None:
        return token
    scratch = _scratch(path, json.dumps({"token": secrets.token_urlsafe(32)}))
    try:
        os.link(scratch, path)  # of two servers that start at once the first to get here decides
    except OSError:
        if _read_token(path) is None:  # what is there is not whole, or this filesystem has no hard links
            scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    return str(json.loads(path.read_text())["token"])


def _read_token(path: Path) -> str | None:
    try:
        return str(json.loads(path.read_text())["token"])
    except (OSError, ValueError, KeyError):
        return None


def _write_private(path: Path, text: str) -> None:
    _scratch(path, text).replace(path)


def _scratch(path: Path, text: str) -> Path:
    """A file beside ``path`` that only its user can read, to be put in its place whole."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    return scratch
