"""An authorizer that a deployment may have configured."""

from __future__ import annotations

from jupyter_server.auth import Authorizer


class Nobody(Authorizer):
    """Lets nobody do anything."""

    def is_authorized(self, handler, user, action, resource) -> bool:
        return False
