from __future__ import annotations

import pytest

from jupyter_sandbox.client.endpoint import Endpoint, is_loopback, parse_url
from jupyter_sandbox.errors import InvalidRequest


@pytest.mark.parametrize(
    ("url", "base", "token"),
    [
        ("http://127.0.0.1:8888/", "http://127.0.0.1:8888", None),
        ("  http://h:1/user/me/?token=abc ", "http://h:1/user/me", "abc"),
        ("https://hub.example/x#frag", "https://hub.example/x", None),
        ("http://0.0.0.0:8888/", "http://127.0.0.1:8888", None),
        ("http://[::]:8888/a", "http://[::1]:8888/a", None),
    ],
)
def test_urls_as_people_paste_them(url: str, base: str, token: str | None) -> None:
    assert parse_url(url) == (base, token)


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8888", "ftp://h", "http://", "http://[::1", "http://h:port", "http://h:0"]
)
def test_what_is_no_url_is_said_to_be_none(url: str) -> None:
    with pytest.raises(InvalidRequest, match="not the URL of a server") as caught:
        parse_url(url)
    assert caught.value.context["field"] == "url"


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:1", True),
        ("http://127.8.9.1", True),
        ("http://[::1]:1", True),
        ("http://localhost:1", True),
        ("http://10.0.0.1", False),
        ("http://localhost.example", False),
    ],
)
def test_loopback(url: str, loopback: bool) -> None:
    assert is_loopback(url) is loopback
    assert Endpoint(url, "").loopback is loopback


@pytest.mark.parametrize("token", ["a\nb", "ü"])
def test_a_token_that_no_header_can_carry(token: str) -> None:
    with pytest.raises(InvalidRequest, match="token"):
        Endpoint("http://127.0.0.1", token)
