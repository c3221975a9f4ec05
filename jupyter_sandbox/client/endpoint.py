"""Where the API is, and how this process came to know of it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from urllib.parse import parse_qs, urlsplit, urlunsplit

from jupyter_sandbox.errors import InvalidRequest


class Origin(StrEnum):
    """How a server was found, in the order of the search."""

    explicit = "explicit"  # the caller named it
    environment = "environment"  # JUPYTER_SANDBOX_URL
    kernel = "kernel"  # the Jupyter server that started this kernel
    store = "store"  # server.json of the default store
    private = "private"  # started for this client


@dataclass(frozen=True)
class Endpoint:
    """A server that answers our API.

    Attributes:
        url: The API's base without ``/api/v1`` and without a final slash.
        token: Sent as ``Authorization: Bearer``; empty when the server asks for none. Never shown.
        origin: How it was found.
        store: The store whose ``server.json`` names the server's successor when it moves; None: it has none.
    """

    url: str
    token: str = field(repr=False)
    origin: Origin = Origin.explicit
    store: Path | None = None

    def __post_init__(self) -> None:
        if not (self.token.isascii() and self.token.isprintable()):
            raise InvalidRequest("The token holds characters that no token has", remedy="Copy it again", field="token")

    @property
    def loopback(self) -> bool:
        """Whether requests stay on this machine, so that no proxy may see them."""
        return is_loopback(self.url)


def is_loopback(url: str) -> bool:
    """Whether a URL's host is ``localhost`` or an address of the loopback interface."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_url(url: str) -> tuple[str, str | None]:
    """A server's URL as people paste it, as ``(base, token)``; ``?token=…`` is Jupyter's own notation.

    Raises:
        InvalidRequest: It is not an http or https URL.
    """
    wrong = InvalidRequest(
        f"{url!r} is not the URL of a server", remedy="Give one like http://127.0.0.1:8888", field="url"
    )
    try:
        parts = urlsplit(url.strip())
        whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that is no number
        raise wrong from None
    if not whole:
        raise wrong
    token = parse_qs(parts.query).get("token", [None])[0]
    base = urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")).rstrip("/")
    # A server that listens on every interface says so in its URL; that is an address to bind, not one to call.
    for wildcard, local in (("//0.0.0.0", "//127.0.0.1"), ("//[::]", "//[::1]")):
        base = base.replace(wildcard, local, 1)
    return base, token
