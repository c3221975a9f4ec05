"""Send a request of ours on to the server that holds the store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from urllib.parse import parse_qsl, urlencode

import httpx

from jupyter_sandbox.errors import ServerUnavailable
from jupyter_sandbox.rendezvous import ServerInfo
from jupyter_sandbox.server.http import failed_line
from jupyter_sandbox.server.routes import PREFIX

FORWARDED = "Jupyter-Sandbox-Forwarded"
"""A header that says: this was sent on by a server already."""

_SENT_ON = ("Content-Type", "Accept", "Idempotency-Key")
_SENT_BACK = ("Content-Type", "Content-Length", "Allow", "Retry-After")
_NEVER = frozenset({"token", "_xsrf"})


class Forwarder:
    """One pool of connections to whichever server holds the store."""

    def __init__(self) -> None:
        # A cell may be silent for hours; only the connection itself has a time limit.
        timeout = httpx.Timeout(None, connect=5.0)
        self._client = httpx.AsyncClient(timeout=timeout, trust_env=False, limits=httpx.Limits(max_connections=None))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def send(
        self, holder: ServerInfo, method: str, raw_path: str, query: str, headers: Mapping[str, str], body: bytes
    ) -> httpx.Response:
        """Send a request on; the response's body is not read yet, and the caller closes it.

        Args:
            holder: Where to; its token replaces whatever the caller signed in with.
            method: In capitals.
            raw_path: Below ``/api/v1/``, not decoded.
            query: As it came; Jupyter's own parameters are left out.
            headers: The caller's; a few are sent on.
            body: Whole, so that this can be done again when nobody answers.

        Raises:
            httpx.ConnectError, httpx.ConnectTimeout: Nobody answers there; nothing was sent.
            ServerUnavailable: The connection broke before an answer came.
        """
        # A path with dot segments must arrive as it is: clients and proxies resolve them unless they are encoded.
        segments = ("%2E" * len(s) if s in {".", ".."} else s for s in raw_path.split("/"))
        pairs = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if name not in _NEVER]
        request = self._client.build_request(
            method,
            f"{holder.url}/{PREFIX}/{'/'.join(segments)}" + (f"?{urlencode(pairs)}" if pairs else ""),
            content=body,
            headers={
                **{name: headers[name] for name in _SENT_ON if name in headers},
                "Authorization": f"Bearer {holder.token}",
                "Accept-Encoding": "identity",
                FORWARDED: "1",
            },
        )
        try:
            response = await self._client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise
        except httpx.TransportError as error:
            raise _broken(error) from error
        if response.status_code == httpx.codes.UNAUTHORIZED:
            await response.aclose()
            raise ServerUnavailable(
                "The server that holds the store does not accept the store's token",
                remedy="Restart that server",
                url=holder.url,
            )
        return response


def headers_back(response: httpx.Response) -> dict[str, str]:
    """The headers of a holder's response that the caller gets too."""
    return {name: response.headers[name] for name in _SENT_BACK if name in response.headers}


async def pieces(response: httpx.Response) -> AsyncGenerator[bytes]:
    """The body as it comes; JSON lines that break end with a ``failed`` line of ours.

    Closing this closes the connection, which tells the holder that nobody reads any more.

    Raises:
        ServerUnavailable: The connection broke in any other kind of body.
    """
    last = b"\n"
    try:
        async for piece in response.aiter_raw():
            last = piece
            yield piece
    except httpx.TransportError as error:
        broken = _broken(error)
        if not response.headers.get("Content-Type", "").startswith("application/x-ndjson"):
            raise broken from error
        yield (b"" if last.endswith(b"\n") else b"\n") + failed_line(broken)
    finally:
        await response.aclose()


def _broken(error: httpx.TransportError) -> ServerUnavailable:
    return ServerUnavailable(
        f"The server that holds the store ended before it answered ({type(error).__name__})",
        remedy="Look whether it was done; a request with an Idempotency-Key can be sent again",
    )
