from __future__ import annotations

import pytest

from jupyter_sandbox.errors import InvalidRequest, MethodNotAllowed, NotFound
from jupyter_sandbox.models import RuntimeCheckpointRequest
from jupyter_sandbox.server.routes import NOUNS, ROUTES, find
from jupyter_sandbox.service import ControlPlane


def test_no_two_routes_take_the_same_request():
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)


def test_every_noun_is_ours():
    assert NOUNS == ("runtimes", "sandboxes", "checkpoints", "lineage", "latency", "engines", "health")


def test_a_fixed_path_wins_over_a_reference():
    route, arguments = find("POST", "runtimes/checkpoint")
    assert route.body is RuntimeCheckpointRequest
    assert arguments == []


def test_a_runtime_may_be_called_like_an_operation():
    route, arguments = find("GET", "runtimes/checkpoint")
    assert route.call is ControlPlane.runtime
    assert arguments == ["checkpoint"]


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ("a.txt", "a.txt"),
        ("d/e/f", "d/e/f"),
        ("../../etc/passwd", "../../etc/passwd"),
        ("%2e%2e/x", "../x"),
        ("/etc/passwd", "/etc/passwd"),
        ("%2Fetc%2Fpasswd", "/etc/passwd"),
        ("a//b/./c/", "a//b/./c/"),
        ("nul%00byte", "nul\0byte"),
        ("line%0Abreak", "line\nbreak"),
        ("%252e%252e/x", "%2e%2e/x"),  # decoded once
        ("100%25", "100%"),
        ("gr%C3%BC%C3%9Fe", "grüße"),
        ("a+b", "a+b"),
        ("", ""),
    ],
)
def test_a_files_path_is_decoded_once_and_otherwise_left_alone(raw, path):
    assert find("GET", f"runtimes/me/files/{raw}") == (find("GET", "runtimes/me/files/x")[0], ["me", path])


def test_a_quoted_slash_does_not_reach_another_route():
    route, arguments = find("GET", "runtimes/x%2Ffiles%2Fy")
    assert route.call is ControlPlane.runtime
    assert arguments == ["x/files/y"]


@pytest.mark.parametrize(
    "path", ["", "runtimes/", "runtimes//attach", "runtimes/x/nothing", "nothing", "checkpoints/x/y/z", "Runtimes"]
)
def test_an_unknown_path_is_not_found(path):
    with pytest.raises(NotFound):
        find("POST" if path.endswith("attach") else "GET", path)


def test_another_method_is_refused_with_the_right_ones():
    with pytest.raises(MethodNotAllowed) as caught:
        find("DELETE", "runtimes")
    assert caught.value.context["allow"] == ["GET", "POST"]


def test_bytes_that_are_not_utf8_are_refused():
    with pytest.raises(InvalidRequest) as caught:
        find("GET", "runtimes/x/files/%ff")
    assert caught.value.context["field"] == "path"
