"""The notebooks run from top to bottom, twice in one store, and show what they show in the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.environment import process_environment
from tests.support.processes import end_store

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def test_every_notebook_runs_and_runs_again(tmp_path):
    environment = process_environment(tmp_path)
    argv = [sys.executable, "-m", "pytest", "-q", "--nbval-lax", "--nbval-current-env", "-p", "no:cacheprovider"]
    try:
        for _ in range(2):
            run = subprocess.run(
                [*argv, "-c", "/dev/null", str(NOTEBOOKS)], env=environment, capture_output=True, text=True, check=False
            )
            assert run.returncode == 0, run.stdout + run.stderr
    finally:
        end_store(tmp_path / "store")
