from __future__ import annotations

import pytest

from jupyter_sandbox.magics.arguments import HelpRequested
from jupyter_sandbox.magics.boundary import magic, show_as


def test_help_is_printed(capsys):
    @magic
    def asked():
        raise HelpRequested("read this")

    assert asked() is None
    assert capsys.readouterr().out == "read this\n"


def test_an_interrupt_goes_on_without_our_stack():
    @magic
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        interrupted()
    assert caught.value._render_traceback_() == ["KeyboardInterrupt"]


def test_an_interrupt_that_has_something_to_show_shows_that():
    @magic
    def interrupted():
        error = KeyboardInterrupt()
        show_as(error, ["the sandbox's traceback"])
        raise error

    with pytest.raises(KeyboardInterrupt) as caught:
        interrupted()
    assert caught.value._render_traceback_() == ["the sandbox's traceback"]


def test_values_and_errors_pass():
    assert magic(lambda x: x + 1)(1) == 2
    with pytest.raises(ZeroDivisionError):
        magic(lambda: 1 / 0)()
