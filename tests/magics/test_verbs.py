from __future__ import annotations

import pytest
from IPython.core.error import UsageError

from jupyter_sandbox.client import Checkpoint
from jupyter_sandbox.errors import CheckpointPinned, NameTaken, RuntimeNotFound

STATE = "squares = (i * i for i in range(9)); next(squares); next(squares)"


@pytest.fixture
def exp(run, client):
    """A sandbox with a running generator; the current one."""
    run("%sandbox create exp")
    run(f"%%sandbox\n{STATE};")
    return client.runtimes.get("exp")


def test_checkpoint_returns_it_and_says_what_it_holds(run, exp):
    made = run("%checkpoint base")
    assert isinstance(made.value, Checkpoint)
    assert made.value.name == "base"
    assigned = run("cp = %checkpoint other\ncp.id;")
    assert "Checkpoint other of exp" in assigned.stdout
    assert "captured: memory" in assigned.stdout
    assert " ms" in assigned.stdout
    assert " MB" in assigned.stdout


def test_checkpoint_says_what_it_saw_and_did_not_capture(run, exp):
    run("%%sandbox\nimport threading\nevent = threading.Event()\n"
        "threading.Thread(target=event.wait, name='keeps-waiting', daemon=True).start()")  # fmt: skip
    assert "keeps-waiting" in run("cp = %checkpoint base").stdout
    assert "keeps-waiting" in run("child = %fork").stdout
    run("%%sandbox\nevent.set()")


def test_checkpoint_again_moves_the_name(run, exp, client):
    first = run("%checkpoint base").value
    run("%%sandbox\nnext(squares)")
    again = run("%checkpoint base")
    assert "base of before lost its name" in again.stdout
    assert client.get_checkpoint("base").id == again.value.id != first.id
    assert client.get_checkpoint(first.id).name is None


def test_checkpoint_on_another_one(run, exp, client):
    client.runtimes.create(name="other")
    assert run("%checkpoint --on other").value.record.source == "other"
    assert run("%checkpoint").value.record.source == "exp"


def test_checkpoint_takes_no_name_of_another_lineage(run, exp, client):
    client.runtimes.create(name="other").checkpoint("base")
    assert isinstance(run("%checkpoint base").error, NameTaken)


def test_forks_go_on_from_the_same_point_and_the_current_one_stays(run, exp):
    run("%checkpoint base")
    run("%%sandbox\nlist(squares);")
    run("%fork base --name a\n%fork base --name b")
    assert run("%%sandbox a\nprint(next(squares), next(squares))").stdout == "4 9\n"
    assert run("%%sandbox b\nprint(next(squares))").stdout == "4\n"
    assert run("%sandbox").value.name == "exp"


def test_fork_without_a_source_forks_the_current_one(run, exp):
    child = run("%fork").value
    assert child.record.parent_runtime_id == exp.id
    assert child.name is None
    assert child.run("print(next(squares))").text == "4\n"


def test_fork_again_replaces_the_old_one_and_says_so(run, exp, client):
    run("%checkpoint base")
    first = run("%fork base --name a")
    assert "before" not in first.stdout
    run("%%sandbox a\nnext(squares);")
    again = run("%fork base --name a")
    assert "a of before was closed" in again.stdout
    assert client.runtimes.get("a").id == again.value.id != first.value.id
    assert client.runtimes.get(first.value.id).status == "closed"
    assert run("%%sandbox a\nprint(next(squares))").stdout == "4\n"


def test_a_replaced_current_one_stays_the_current_one_by_its_name(run, exp):
    run("%checkpoint base\n%fork base --name a\n%sandbox use a")
    again = run("%fork base --name a").value
    assert run("%sandbox").value.id == again.id


def test_fork_takes_no_name_of_another_lineage(run, exp, client):
    client.runtimes.create(name="a")
    assert isinstance(run("%fork --name a").error, NameTaken)


def test_no_reseed_keeps_the_random_stream(run, exp):
    run("%%sandbox\nimport random; random.seed(1); random.random();\n")
    run("%checkpoint base\n%fork base --name a --no-reseed\n%fork base --name b --no-reseed\n%fork base --name c")
    drawn = [run(f"%%sandbox {name}\nprint(random.random())").stdout for name in "abc"]
    assert drawn[0] == drawn[1] != drawn[2]


def test_checkout_makes_the_child_the_current_one(run, exp):
    run("%checkpoint base")
    child = run("%checkout base --name back").value
    assert run("%sandbox").value.id == child.id != exp.id
    assert run("%%sandbox\nprint(next(squares))").stdout == "4\n"
    again = run("%checkout base --name back")
    assert "back of before was closed" in again.stdout


def test_pause_and_resume_keep_the_id(run, exp):
    assert run("%pause").value.status == "paused"
    assert run("%sandbox").value.status == "paused"
    back = run("%resume exp").value
    assert (back.id, back.status) == (exp.id, "idle")
    assert run("%%sandbox\nprint(next(squares))").stdout == "4\n"


def test_close_forgets_the_current_one_only(run, exp, client):
    client.runtimes.create(name="other")
    run("%close other")
    assert run("%sandbox").value.id == exp.id
    assert run("%close").value.status == "closed"
    assert run("%sandbox").value is None


def test_close_with_what_came_from_it(run, exp, client):
    run("%checkpoint base\n%fork base --name a\n%close exp --cascade")
    assert list(client.runtimes.list()) == []
    assert list(client.checkpoints()) == []


def test_pin_and_prune(run, exp, client):
    run("%checkpoint keep\n%checkpoint drop")
    assert run("%pin keep").value.record.pinned
    assert run("%prune").value == ("drop",)
    with pytest.raises(CheckpointPinned):
        client.delete_checkpoint("keep")
    nothing = run("%prune")
    assert "No checkpoint to prune" in nothing.stdout
    assert not run("%pin keep --off").value.record.pinned
    assert run("%prune").value == ("keep",)


def test_lists_are_values_and_print_nothing_when_assigned(run, exp):
    run("%checkpoint base")
    listed = run("cps = %checkpoints\ntree = %lineage\ntimes = %latency\nframe = times.to_frame()")
    assert (listed.stdout, listed.failed) == ("", False)
    assert [each.name for each in run("%checkpoints").value] == ["base"]
    assert {node.kind for node in run("%lineage").value} == {"runtime", "checkpoint"}
    assert "checkpoint" in {row.operation for row in run("%latency").value}


def test_lineage_leaves_out_what_is_over(run, exp, client):
    client.runtimes.create(name="over").close()
    names = {each.runtime.name for each in run("%lineage").value if each.runtime}
    assert "over" not in names
    assert "exp" in names
    assert "over" in {each.runtime.name for each in run("%lineage --all").value if each.runtime}


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("%checkpoint a b", UsageError),
        ("%checkout", UsageError),
        ("%pin", UsageError),
        ("%lineage all", UsageError),
        ("%fork --name 'a b'", UsageError),
        ("%pause nowhere", RuntimeNotFound),
        ("%close nowhere", RuntimeNotFound),
        ("%checkpoint --on nowhere", RuntimeNotFound),
    ],
)
def test_mistakes_are_one_line(run, line, error):
    bad = run(line)
    assert isinstance(bad.error, error)
    (text,) = (bad.stdout + bad.stderr).splitlines()
    assert text.startswith(f"{error.__name__}: ")


@pytest.mark.parametrize("line", ["%checkpoint", "%fork", "%pause", "%resume", "%close"])
def test_without_a_current_sandbox(run, line):
    assert isinstance(run(line).error, UsageError)
