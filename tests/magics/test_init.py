"""Loading and unloading the extension."""

from __future__ import annotations

import pytest

import jupyter_sandbox

LINE = {
    *("sandbox", "checkpoint", "fork", "checkout", "pause", "resume", "close", "pin", "prune"),
    *("checkpoints", "lineage", "latency"),
}


def magics(shell):
    tables = shell.magics_manager.magics
    return LINE & set(tables["line"]), {"sandbox"} & set(tables["cell"])


def test_load_gives_the_magics_and_unload_takes_them_away(bare_shell):
    callbacks = list(bare_shell.events.callbacks["post_run_cell"])
    jupyter_sandbox.load_ipython_extension(bare_shell)
    assert magics(bare_shell) == (LINE, {"sandbox"})
    jupyter_sandbox.unload_ipython_extension(bare_shell)
    assert magics(bare_shell) == (set(), set())
    assert bare_shell.Completer.custom_matchers == []
    assert bare_shell.events.callbacks["post_run_cell"] == callbacks
    assert not {"SandboxMagics", "VerbMagics"} & set(bare_shell.magics_manager.registry)


def test_loading_twice_is_loading_once(bare_shell):
    jupyter_sandbox.load_ipython_extension(bare_shell)
    first = bare_shell.magics_manager.magics["line"]["sandbox"]
    jupyter_sandbox.load_ipython_extension(bare_shell)
    assert bare_shell.magics_manager.magics["line"]["sandbox"] == first
    assert len(bare_shell.Completer.custom_matchers) == 1
    jupyter_sandbox.unload_ipython_extension(bare_shell)
    jupyter_sandbox.unload_ipython_extension(bare_shell)


def test_a_magic_that_took_the_place_of_ours_stays(bare_shell):
    jupyter_sandbox.load_ipython_extension(bare_shell)
    bare_shell.register_magic_function(lambda line: "the user's", "line", "fork")
    jupyter_sandbox.unload_ipython_extension(bare_shell)
    assert bare_shell.run_line_magic("fork", "") == "the user's"


@pytest.mark.parametrize("name", sorted(LINE))
def test_each_magic_explains_itself(shell, name):
    assert len(shell.find_line_magic(name).__doc__) > 40
