"""Which Python a runtime runs on."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

from jupyter_sandbox.errors import InvalidRequest

_OLDEST = (3, 11)
_TIMEOUT_S = 20.0
_checked: dict[tuple[str, float], tuple[int, ...]] = {}


async def interpreter(python: str | None) -> str:
    """The absolute path of the interpreter that a request means; default: the server's own.

    Symbolic links are kept: a virtual environment is known by the link.

    Raises:
        InvalidRequest: There is no such program, or it is not a Python that the agent runs on.
    """
    if python is None or python == sys.executable:
        return sys.executable
    path = shutil.which(os.path.expanduser(python))  # noqa: PTH111 - a bare name is looked up in PATH
    if path is None:
        raise InvalidRequest(
            f"There is no program {python}", remedy="Give the path of a Python interpreter", field="python"
        )
    path = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow the link
    version = await _version(path)
    if version < _OLDEST:
        shown = ".".join(map(str, version))
        raise InvalidRequest(
            f"{python} is Python {shown}", remedy="A runtime needs Python 3.11 or newer", field="python"
        )
    return path


async def _version(path: str) -> tuple[int, ...]:
    key = (path, Path(path).stat().st_mtime)
    if key not in _checked:
        code = "import sys; print(*sys.version_info[:2])"
        process = await asyncio.create_subprocess_exec(
            path, "-I", "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                output, _ = await process.communicate()
            _checked[key] = tuple(map(int, output.split()[:2]))
            if process.returncode or len(_checked[key]) != len(_OLDEST):
                raise ValueError(output)
        except (TimeoutError, ValueError) as error:
            _checked.pop(key, None)
            if process.returncode is None:
                process.kill()
                await process.wait()
            raise InvalidRequest(
                f"{path} does not answer like a Python interpreter", remedy="Give the path of one", field="python"
            ) from error
    return _checked[key]
