from __future__ import annotations

import pytest
from IPython.core.error import UsageError

from jupyter_sandbox.errors import CommandFailed, InvalidRequest, OperationTimeout, RuntimeNotFound


def test_create_makes_it_and_makes_it_the_current_one(client, run):
    created = run("exp = %sandbox create exp --env GREETING='good day'")
    assert not created.failed
    assert client.runtimes.get("exp").status == "idle"
    assert run("%sandbox").value.id == client.runtimes.get("exp").id
    assert run("%%sandbox\nimport os; print(os.environ['GREETING'])").stdout == "good day\n"


def test_create_attaches_to_one_that_is_there_and_says_so(client, run):
    first = run("%sandbox create exp")
    assert "attached" not in first.stdout
    again = run("%sandbox create exp")
    assert "exp exists already (idle): attached to it" in again.stdout
    assert again.value.id == first.value.id
    assert len(client.runtimes.list()) == 1


def test_create_without_a_name_makes_another_each_time(client, run):
    assert run("%sandbox create").value.id != run("%sandbox create").value.id
    assert [runtime.name for runtime in client.runtimes.list()] == [None, None]


def test_create_in_a_directory_of_the_caller_s(run, tmp_path):
    (tmp_path / "my data").mkdir()
    run(f"%sandbox create --cwd '{tmp_path}/my data'")
    assert run("%%sandbox\nimport os; print(os.getcwd())").stdout == f"{tmp_path}/my data\n"


def test_create_where_nothing_is_names_the_field(run, tmp_path):
    refused = run(f"%sandbox create --cwd {tmp_path}/nowhere")
    assert isinstance(refused.error, InvalidRequest)
    assert refused.error.context["field"] == "cwd"


def test_variables_of_the_notebook_in_a_line(run):
    assert run("name = 'exp-7'\n%sandbox create {name}").value.name == "exp-7"
    assert run("%sandbox use $name").value.name == "exp-7"


def test_use_changes_the_current_one(run):
    run("%sandbox create one\n%sandbox create two")
    assert run("%sandbox").value.name == "two"
    run("%sandbox use one")
    assert run("%sandbox").value.name == "one"


def test_ls_lists_closed_ones_when_asked(run):
    run("%sandbox create one\n%sandbox create two\n%close one")
    assert [each.name for each in run("%sandbox ls").value] == ["two"]
    assert "one" in {each.name for each in run("%sandbox ls --all").value}


def test_without_a_current_one(run):
    alone = run("%sandbox")
    assert not alone.failed
    assert "%sandbox create makes one" in alone.stdout
    assert isinstance(run("%%sandbox\n1").error, UsageError)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%sandbox nonsense", "no verb 'nonsense'"),
        ("%sandbox create a b", "unrecognized arguments: b"),
        ("%sandbox create .a", "'.a' is not a name"),
        ("%sandbox use", "required: RUNTIME"),
        ("%sandbox exec exp", "the command is missing"),
        ("%%sandbox --timeout soon\n1", "--timeout"),
        ("%%sandbox 'open\n1", "No closing quotation"),
    ],
)
def test_bad_lines_are_one_line_and_fail_the_cell(run, cell, said):
    bad = run(cell)
    assert isinstance(bad.error, UsageError)
    (line,) = bad.stderr.splitlines()
    assert line.startswith("UsageError: ")
    assert said in line
    assert bad.stdout == ""


def test_errors_of_ours_are_one_line_and_fail_the_cell(run):
    unknown = run("%sandbox use nowhere")
    assert isinstance(unknown.error, RuntimeNotFound)
    (line,) = (unknown.stdout + unknown.stderr).splitlines()
    assert line.startswith("RuntimeNotFound: ")
    assert "nowhere" in line


@pytest.mark.parametrize("line", ["%sandbox --help", "%sandbox create --help", "%sandbox exec -h", "%pause --help"])
def test_help_is_an_answer(run, line):
    helped = run(line)
    assert not helped.failed
    assert line.rpartition(" ")[0] in helped.stdout


def test_exec_shows_both_streams(run):
    run("%sandbox create exp")
    shown = run("%sandbox exec -- echo out; echo err >&2")
    assert (shown.stdout, shown.stderr, shown.failed) == ("out\n", "err\n", False)


def test_exec_keeps_the_line_as_it_is(run):
    run("%sandbox create exp\n%sandbox create other")
    assert run("%sandbox exec exp -- printf '%s|' 'a  b' -- \"c\"").stdout == "a  b|--|c|"


def test_exec_fails_with_its_command(run):
    run("%sandbox create exp")
    failed = run("%sandbox exec -- echo why >&2; exit 3")
    assert isinstance(failed.error, CommandFailed)
    assert failed.stderr.startswith("why\n")
    assert "exit code 3" in failed.stdout + failed.stderr


def test_exec_ends_when_its_time_is_up(run):
    run("%sandbox create exp")
    assert isinstance(run("%sandbox exec --timeout 0.2 -- sleep 60").error, OperationTimeout)


def test_exec_starts_in_a_directory_of_the_sandbox(run):
    run("%sandbox create exp\n%sandbox exec -- mkdir d && echo inside > d/file")
    assert run("%sandbox exec --cwd d -- cat file").stdout == "inside\n"
