"""``jupyter sandbox serve``: the daemon."""

from __future__ import annotations

import sys
from pathlib import Path

from jupyter_sandbox.rendezvous import default_store_dir


def serve(*, store: Path | None, private: bool, port: int, ip: str = "127.0.0.1") -> None:
    """Serve the API until a signal, or, when private, until nothing live is left. Blocks.

    Prints one line: the URL, and which file holds the token.

    Args:
        store: The store's directory; None: the user's own.
        private: End when no live runtime and no held checkpoint is left and no request came for a while, and at once
            when another server holds the store.
        port: TCP port; 0: a free one.
        ip: The address to listen on.

    Raises:
        SandboxError: The store can neither be opened nor is it held by another server.
    """
    # An optional validator of jsonschema that nothing here needs builds its parser when it is imported, which takes
    # longer than all the rest of the start; a client that starts a private server waits for that.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # None: the import fails, as when missing
    from jupyter_sandbox.server import daemon

    daemon.run((store or default_store_dir()).expanduser().absolute(), private=private, port=port, ip=ip)
