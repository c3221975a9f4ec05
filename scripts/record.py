"""Run the demo and record what it printed, in docs/recorded/ and in the README: ``make record``."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
RECORDED = ROOT / "docs" / "recorded" / "demo.txt"


def main() -> int:
    """Record; the exit code is the demo's."""
    environment = {**os.environ, "COLUMNS": "112", "NO_COLOR": "1", "TERM": "dumb"}
    run = subprocess.run(
        [sys.executable, "-m", "jupyter_sandbox.cli.demo"], capture_output=True, text=True, env=environment, check=False
    )
    lines = [line.rstrip() for line in run.stdout.splitlines()]
    machine = (
        f"Python {platform.python_version()}, Linux {platform.release().partition('-')[0]}, {os.cpu_count()} cores"
    )
    RECORDED.write_text("\n".join([f"$ make demo    # {machine}", *lines]).strip() + "\n")
    if run.returncode == 0:
        readme = ROOT / "README.md"
        readme.write_text(with_recording(readme.read_text(), RECORDED.read_text()))
    sys.stderr.write(run.stderr)
    return run.returncode


def with_recording(readme: str, recording: str) -> str:
    """The README with the recording in its place."""
    block = f"<!-- recorded: docs/recorded/demo.txt -->\n```text\n{recording}```\n<!-- end -->"
    return re.sub(
        r"<!-- recorded: docs/recorded/demo\.txt -->.*?<!-- end -->", lambda _: block, readme, flags=re.DOTALL
    )


if __name__ == "__main__":
    sys.exit(main())
