"""The agent's errors are those of the package, by name."""

from __future__ import annotations

import errno

import pytest

from jupyter_sandbox import errors
from jupyter_sandbox.agent.errors import AgentError, from_os_error, os_errors, shown


@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_every_errno_is_an_error_of_the_tree(number):
    error = from_os_error(OSError(number, "why"), "some/path")
    assert isinstance(getattr(errors, error.code), type)
    assert "'some/path'" in error.message
    assert errors.from_dict(error.to_dict()).message == error.message


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOENT, "PathNotFound"),
        (errno.ENOSPC, "StorageFull"),
        (errno.EDQUOT, "StorageFull"),
        (errno.EACCES, "Forbidden"),
        (errno.EXDEV, "InvalidRequest"),
    ],
)
def test_codes(number, code):
    with pytest.raises(AgentError) as caught, os_errors("p"):
        raise OSError(number, "why")
    assert caught.value.code == code
    assert caught.value.remedy


def test_paths_are_shown_short_and_printable():
    assert shown("a b") == "'a b'"
    assert len(shown("x" * 5000)) < 250
    assert "\n" not in shown("a\nb")
    for odd in ("\udcff", "\ud800", "\x1b[31m"):
        assert shown(odd).isascii()
