from __future__ import annotations

import argparse

import pytest
from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, magic_arguments

from jupyter_sandbox.magics import arguments


@magic_arguments("sandbox go")
@argument("name", nargs="?", type=arguments.name, metavar="NAME")
@argument("--memory", type=arguments.megabytes)
@argument("--timeout", type=arguments.seconds)
@argument("--env", type=arguments.variable, action="append")
@argument("--directory")
def declared(line):
    """Go."""


def test_words_lose_their_quotes():
    parsed = arguments.parse(declared, "exp --directory 'my data' --env A=1 --env 'B=x = y'")
    assert (parsed.name, parsed.directory) == ("exp", "my data")
    assert parsed.env == [("A", "1"), ("B", "x = y")]


def test_numbers_have_their_units():
    parsed = arguments.parse(declared, "--memory 512 --timeout 0.5")
    assert (parsed.memory, parsed.timeout) == (512, 0.5)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("two words", "unrecognized arguments: words"),
        ("--nonsense", "unrecognized arguments: --nonsense"),
        ("'open", "No closing quotation"),
        ("-memory", "unrecognized arguments: -memory"),
        ("'a b'", "argument NAME: 'a b' is not a name"),
        ("rt/1", "argument NAME: 'rt/1' is not a name"),
        ("--memory 0", "argument --memory: '0' is not a positive"),
        ("--memory 1.5", "argument --memory"),
        ("--memory", "argument --memory: expected one argument"),
        ("--timeout 0", "argument --timeout: '0' is not a positive"),
        ("--timeout nan", "argument --timeout"),
        ("--timeout inf", "argument --timeout"),
        ("--timeout soon", "argument --timeout"),
        ("--env A", "argument --env: 'A' is not of the form K=V"),
        ("--env =1", "argument --env"),
    ],
)
def test_what_is_wrong_is_one_line(line, said):
    with pytest.raises(UsageError) as caught:
        arguments.parse(declared, line)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("line", ["--help", "-h", "exp --help", "--help --nonsense"])
def test_help_is_an_answer(line):
    with pytest.raises(arguments.HelpRequested) as caught:
        arguments.parse(declared, line)
    assert "%sandbox go" in str(caught.value)
    assert "Go." in str(caught.value)


@pytest.mark.parametrize(
    ("line", "head", "command"),
    [
        ("exp --cwd d -- ls -l 'a  b' | wc", "exp --cwd d", "ls -l 'a  b' | wc"),
        ("-- git log -- file", "", "git log -- file"),
        ("exp", "exp", None),
        ("exp --", "exp", ""),
        ("--cwd a--b", "--cwd a--b", None),
    ],
)
def test_a_command_stays_as_it_was_written(line, head, command):
    assert arguments.split_command(line) == (head, command)


def test_a_name_that_is_none_names_the_argument():
    with pytest.raises(argparse.ArgumentTypeError, match="'_x' is not a name"):
        arguments.name("_x")
