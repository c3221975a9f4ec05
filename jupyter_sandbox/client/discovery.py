"""Which server is meant: the one given, this kernel's own, the one that holds the store, or a private one.

Never the first Jupyter server that happens to run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx
from jupyter_core.paths import jupyter_runtime_dir

from jupyter_sandbox.client import wire
from jupyter_sandbox.client.endpoint import Endpoint, Origin, parse_url
from jupyter_sandbox.client.private_server import start_private_server
from jupyter_sandbox.errors import SandboxError, ServerUnavailable, Unauthorized
from jupyter_sandbox.models import Health
from jupyter_sandbox.rendezvous import TOKEN_ENV, URL_ENV, default_store_dir, read_server_info

KERNEL_PARENT_ENV = "JPY_PARENT_PID"
PING_TIMEOUT_S = 5.0


def find(url: str | None = None, token: str | None = None) -> Endpoint:
    """The server that is meant; it has answered when this returns. Blocks.

    Args:
        url: The caller's own choice: nothing else is tried then.
        token: For ``url``; alone it is ignored by the other steps, which bring their own.

    Raises:
        ServerUnavailable: The server that was named does not answer, or a private one does not come up.
        Unauthorized: The server that was named does not accept the token.
    """
    if url is not None:
        endpoint = named(url, token)
        ping(endpoint)
        return endpoint
    store = default_store_dir()
    given = from_environment(store)
    failure: SandboxError | None = None
    if given is not None:
        try:
            ping(given)
        except (ServerUnavailable, Unauthorized) as error:
            # A kernel outlives its server: what it inherited may be stale, and the next steps know better.
            failure = error
        else:
            return given
    for candidate in (from_kernel_parent(store), from_store(store)):
        if candidate is not None and answers(candidate):
            return candidate
    if failure is not None:
        failure.remedy = f"{failure.remedy}; {URL_ENV} names this server: correct or unset it"
        raise failure
    return private(store)


def named(url: str, token: str | None = None) -> Endpoint:
    """The server that a caller names. A token that is not given is looked up where this very URL is known."""
    base, in_url = parse_url(url)
    token = token or in_url
    if token is None:
        environment = os.environ.get(URL_ENV)
        known = read_server_info(default_store_dir())
        if environment is None or parse_url(environment)[0] == base:
            token = os.environ.get(TOKEN_ENV)
        if token is None and known is not None and known.url == base:
            token = known.token
    return Endpoint(base, token or "", Origin.explicit)


def from_environment(store: Path) -> Endpoint | None:
    """The server that started this process said so in its environment, or a person did."""
    url = os.environ.get(URL_ENV)
    if not url:
        return None
    base, in_url = parse_url(url)
    return Endpoint(base, os.environ.get(TOKEN_ENV) or in_url or "", Origin.environment, store)


def from_kernel_parent(store: Path) -> Endpoint | None:
    """The Jupyter server whose child this kernel is, by the runtime file that this server wrote."""
    parent = os.environ.get(KERNEL_PARENT_ENV, "")
    if not parent.isdecimal():
        return None
    try:
        info = json.loads((Path(jupyter_runtime_dir()) / f"jpserver-{parent}.json").read_bytes())
        base, _ = parse_url(str(info["url"]))
        return Endpoint(base, str(info.get("token") or ""), Origin.kernel, store)
    except (OSError, ValueError, KeyError, TypeError):
        return None  # no such file, or one that is not (or not yet) whole: this kernel's parent is no Jupyter server


def from_store(store: Path) -> Endpoint | None:
    """The server that holds the store, as ``server.json`` there names it."""
    info = read_server_info(store)
    return None if info is None else Endpoint(info.url.rstrip("/"), info.token, Origin.store, store)


def private(store: Path) -> Endpoint:
    """A server started now for this store, or the one that another client started at the same moment."""

    def up() -> Endpoint | None:
        candidate = from_store(store)
        return candidate if candidate is not None and answers(candidate) else None

    found = start_private_server(store, up)
    return Endpoint(found.url, found.token, Origin.private, store)


def successor(endpoint: Endpoint, *, gone: bool) -> Endpoint | None:
    """Where the server went that was at ``endpoint``: None when nobody knows. Blocks.

    Args:
        endpoint: Where it was.
        gone: Nothing answers there (otherwise: something that does not take the token). A private server, which ends
            when nothing lives in it, is then started again.
    """
    if endpoint.store is None:
        return None
    now = from_store(endpoint.store)
    if now is not None and (now.url, now.token) != (endpoint.url, endpoint.token) and answers(now):
        return Endpoint(now.url, now.token, endpoint.origin, endpoint.store)
    if gone and endpoint.origin is Origin.private and not answers(endpoint):
        return private(endpoint.store)
    return None


def ping(endpoint: Endpoint) -> Health:
    """What the server says of itself.

    Raises:
        ServerUnavailable: It does not answer, or has no API of ours.
        Unauthorized: It does not accept the token.
    """
    request = wire.headers(endpoint)
    url = f"{endpoint.url}{wire.path('health')}"
    try:
        response = httpx.get(url, headers=request, timeout=PING_TIMEOUT_S, trust_env=not endpoint.loopback)
    except httpx.TransportError as error:
        raise wire.unreachable(endpoint, error) from error
    wire.check(endpoint, response)
    return wire.parse(Health, response)


def answers(endpoint: Endpoint) -> bool:
    """Whether a server of ours is there and takes the token."""
    try:
        ping(endpoint)
    except SandboxError:
        return False
    return True
