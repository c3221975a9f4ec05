from __future__ import annotations

import pytest

from jupyter_sandbox.server.identity import StoreToken

TOKEN = "s3cret-Token_x"


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER  {TOKEN} "])
def test_the_token_in_a_bearer_header_is_recognised(header):
    assert StoreToken(TOKEN).presented_by(header)


@pytest.mark.parametrize(
    "header",
    [
        "",
        TOKEN,
        "Bearer",
        "Bearer ",
        f"token {TOKEN}",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}",
        f"Bearer {TOKEN} {TOKEN}",
        "Bearer ü",
    ],
)
def test_anything_else_is_not(header):
    assert not StoreToken(TOKEN).presented_by(header)
