from __future__ import annotations

import re

import pytest

from jupyter_sandbox import errors
from jupyter_sandbox.errors import SandboxError, from_dict

TREE = errors._tree(SandboxError)


def test_the_drawing_in_the_docstring_is_the_tree() -> None:
    drawn = re.findall(r"^\s*[│├└─\s]*([A-Z]\w+)(?:\s+(\d{3}))?", (errors.__doc__ or "").split("::")[1], re.MULTILINE)
    assert {name for name, _ in drawn} == set(TREE)
    for name, status in drawn:
        if status:
            assert TREE[name].http_status == int(status), name


@pytest.mark.parametrize("name", TREE)
def test_every_error_survives_the_wire(name: str) -> None:
    error = TREE[name]("It broke", remedy="Mend it", field="x")
    again = from_dict(error.to_dict(), error.http_status)
    assert type(again) is TREE[name]
    assert (again.message, again.remedy, again.context) == ("It broke", "Mend it", {"field": "x"})
    assert str(again) == "It broke. Mend it"
    assert error._render_traceback_() == [f"{name}: It broke. Mend it"]


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("InvalidRequest", ValueError),
        ("Forbidden", PermissionError),
        ("NotFound", LookupError),
        ("PathNotFound", FileNotFoundError),
        ("ServerUnavailable", ConnectionError),
        ("OperationTimeout", TimeoutError),
        ("StorageFull", OSError),
    ],
)
def test_each_is_also_the_builtin_that_one_expects(name: str, builtin: type) -> None:
    assert issubclass(TREE[name], builtin)


def test_an_unknown_code_becomes_the_class_of_its_status() -> None:
    assert type(from_dict({"code": "Newer", "message": "m"}, 409)) is errors.Conflict
    assert type(from_dict({"code": "Newer", "message": "m"}, 418)) is SandboxError
    assert from_dict({}, 500).message == ""
