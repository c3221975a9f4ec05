"""``import jupyter_sandbox``: its public names, each imported when it is first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import jupyter_sandbox
from jupyter_sandbox import client, errors


@pytest.mark.parametrize("name", jupyter_sandbox.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert name in dir(jupyter_sandbox)
    value = getattr(jupyter_sandbox, name)
    assert value in {getattr(client, name, None), getattr(errors, name, None), jupyter_sandbox.__version__}


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        jupyter_sandbox.nonsense  # noqa: B018


def test_a_star_import_works() -> None:
    code = "from jupyter_sandbox import *; print(connect.__name__, SandboxError.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "connect SandboxError\n"


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = ("httpx", "pydantic", "pandas", "IPython", "click")
    code = f"import sys, jupyter_sandbox; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
