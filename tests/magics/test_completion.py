from __future__ import annotations

import threading

import pytest
from IPython.core.completer import provisionalcompleter

from jupyter_sandbox.client import connect
from jupyter_sandbox.magics import completion
from jupyter_sandbox.magics.completion import NameCache, Names
from jupyter_sandbox.magics.current import Desk


@pytest.fixture
def complete(shell):
    """What Tab offers at the end of a text, by both of IPython's ways to ask."""

    def at_the_end(text):
        with provisionalcompleter():
            found = list(shell.Completer.completions(text, len(text)))
        assert len({(each.start, each.end) for each in found}) <= 1
        offered = [text[: each.start] + each.text for each in found]
        last = text.rpartition("\n")[2]
        with pytest.warns(PendingDeprecationWarning):
            _, matches = shell.complete("", last, len(last))
        assert matches == [each.text for each in found]
        return offered

    return at_the_end


@pytest.fixture
def names(monkeypatch):
    monkeypatch.setattr(NameCache, "get", lambda self: Names(runtimes=("exp", "a.1"), checkpoints=("base", "epoch-1")))


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("%sandbox ", ["create", "use", "ls", "exec"]),
        ("%sandbox c", ["create"]),
        ("%sandbox use ", ["exp", "a.1"]),
        ("%sandbox use a.", ["a.1"]),
        ("%sandbox create --e", ["--engine", "--env"]),
        ("%%sandbox e", ["exp"]),
        ("%%sandbox exp --", ["--timeout", "--quiet"]),
        ("%%sandbox --timeout 3 e", ["exp"]),
        ("%fork ", ["exp", "a.1", "base", "epoch-1"]),
        ("%fork base --na", ["--name"]),
        ("%fork base ", ["--name", "--no-reseed"]),
        ("%fork --no-reseed ep", ["epoch-1"]),
        ("%fork base --name a", ["a.1"]),
        ("%fork base --name=a", ["a.1"]),
        ("%checkout epoch-", ["epoch-1"]),
        ("%pin b", ["base"]),
        ("%pause ", ["exp", "a.1"]),
        ("cp = %checkpoint --on e", ["exp"]),
        ("x = 1\n%close ex", ["exp"]),
    ],
)
def test_what_is_offered(complete, text, offered):
    before = text.rpartition(" ")[0] + (" --name=" if "--name=" in text else " ")
    before = before.replace(" --name= --name=", " --name=")
    assert [each.removeprefix(before) for each in complete(text)] == offered


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    "text",
    [
        *("%timeit exp.", "sandbox e", "%%timeit e", "print('%fork b", "%sandbox"),
        *("%sandbox create e", "%sandbox nonsense e", "%sandbox exec exp -- ls e", "%checkpoint base e"),
    ],
)
def test_where_we_have_nothing_to_offer(shell, text):
    (matcher,) = shell.Completer.custom_matchers
    context = type("Context", (), {"text_until_cursor": text, "token": text.rpartition(" ")[2]})
    assert matcher(context)["completions"] == []


def test_names_are_those_of_the_server(client, run, complete):
    run("%sandbox create exp\n%checkpoint base")
    assert complete("%fork ") == ["%fork exp", "%fork base"]


def test_a_shell_that_is_not_connected_connects_nowhere_for_a_tab():
    def refuse():
        raise AssertionError("Tab must not look for a server")

    assert NameCache(Desk(refuse)).get() == Names()


def test_a_server_that_is_gone_has_no_names(client):
    desk = Desk(lambda: connect("http://127.0.0.1:9", "t"))
    desk._client = type(client)(type(client.endpoint)("http://127.0.0.1:9", "t"))
    assert NameCache(desk).get() == Names()


def test_a_slow_server_is_not_waited_for(client, monkeypatch):
    answer = threading.Event()
    answered = threading.Event()
    monkeypatch.setattr(completion, "_PATIENCE_S", 0.01)

    class Slow:
        class runtimes:  # noqa: N801
            @staticmethod
            def list():
                answer.wait(30)
                return client.runtimes.list()

        @staticmethod
        def checkpoints():
            answered.set()
            return client.checkpoints()

    client.runtimes.create(name="late")
    desk = Desk()
    desk._client = Slow
    cache = NameCache(desk)
    assert cache.get() == Names()
    answer.set()
    assert answered.wait(30)
    cache._answered.wait(30)
    assert cache.get() == Names(runtimes=("late",))
