"""The store's token as a way to sign in, on our API only.

Kernels inherit it and outlive servers, so it belongs to the store and not to one server. Whoever can read it (a file
of mode 0600) is the server's own user already, so the server's authorizer has nothing to add; that authorizer and the
identity provider may be a hub's, which know nothing of it and are not asked.
"""

from __future__ import annotations

import hmac
import re

from jupyter_server.auth import AllowAllAuthorizer, Authorizer, IdentityProvider, User
from tornado.web import RequestHandler

_BEARER = re.compile(r"bearer +(\S+) *$", re.IGNORECASE)


class StoreTokenIdentity(IdentityProvider):
    """Identifies a request that presented the store's token; it sets no cookie and asks for no XSRF token."""

    user = User(username="jupyter-sandbox", name="Jupyter Sandbox", display_name="Holder of the store's token")

    def get_user(self, handler: RequestHandler) -> User:  # noqa: ARG002 - Jupyter's signature
        """Whoever holds the store's token."""
        return self.user

    def is_token_authenticated(self, handler: RequestHandler) -> bool:  # noqa: ARG002
        """Always: that is what this provider is for."""
        return True


class StoreToken:
    """Recognises the store's token in an ``Authorization: Bearer`` header, and nowhere else."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self.identity: IdentityProvider = StoreTokenIdentity(token="")
        self.authorizer: Authorizer = AllowAllAuthorizer(identity_provider=self.identity)

    def presented_by(self, authorization: str) -> bool:
        """Whether an ``Authorization`` header carries the token; takes the same time wherever they differ."""
        match = _BEARER.match(authorization)
        return match is not None and hmac.compare_digest(match.group(1).encode(), self._token)
