from __future__ import annotations

import pytest
from IPython.utils.capture import capture_output

from jupyter_sandbox.magics.announce import Announcements


class Thing:
    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"<{self.name}>"


@pytest.fixture
def seen(bare_shell):
    """Runs a cell in which ``later`` and ``say`` are ours; returns what was printed, the cell's result in it."""
    announcements = Announcements(bare_shell)
    bare_shell.user_ns.update(later=announcements.later, say=announcements.say, Thing=Thing)

    def run(code):
        with capture_output() as captured:
            assert bare_shell.run_cell(code).success
        return captured.stdout + "".join(f"Out: {each}" for each in captured.outputs)

    yield run
    announcements.stop()


def test_a_cells_result_is_shown_as_that_only(seen):
    assert seen("later(Thing('a'))").count("<a>") == 1


def test_an_assigned_value_is_printed_when_the_cell_ends(seen):
    assert seen("x = later(Thing('a')); print('more')") == "more\n<a>\n"


def test_an_assigned_value_that_the_cell_shows_is_not_printed(seen):
    assert seen("x = later(Thing('a'))\nx").count("<a>") == 1


def test_of_several_each_is_seen_once_and_in_order(seen):
    text = seen("later(Thing('a'))\nsay('line')\nlater(Thing('b'))\nlater(Thing('c'))")
    assert [text.count(name) for name in ("<a>", "<b>", "<c>")] == [1, 1, 1]
    assert text.index("<a>") < text.index("line") < text.index("<b>") < text.index("<c>")


def test_the_next_cell_says_nothing_of_it(seen):
    seen("x = later(Thing('a'))")
    assert seen("pass") == ""


def test_a_failed_cell_still_says_what_it_did(bare_shell, seen):
    with capture_output() as captured:
        bare_shell.run_cell("x = later(Thing('a')); 1 / 0")
    assert "<a>" in captured.stdout


def test_after_stop_the_shell_has_nothing_of_ours(bare_shell):
    before = list(bare_shell.events.callbacks["post_run_cell"])
    Announcements(bare_shell).stop()
    assert bare_shell.events.callbacks["post_run_cell"] == before
