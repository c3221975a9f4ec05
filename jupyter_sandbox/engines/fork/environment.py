"""The environment of a runtime: an allow-list of the server's, and what the caller adds.

Tokens, keys and passwords of the server (``JUPYTERHUB_API_TOKEN``, ``E2B_API_KEY``, …) are not on the list, and neither
is anything that nobody thought of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_ALLOWED = re.compile(
    r"""HOME|USER|LOGNAME|SHELL|PATH|PWD|TERM|COLORTERM|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|HOSTNAME
    |XDG_(CACHE|CONFIG|DATA|RUNTIME|STATE)_(HOME|DIR)|XDG_DATA_DIRS
    |PYTHON(PATH|HOME|HASHSEED|IOENCODING|UTF8|WARNINGS|NOUSERSITE|USERBASE|PYCACHEPREFIX|DONTWRITEBYTECODE)
    |VIRTUAL_ENV|CONDA_\w+|MAMBA_\w+|LD_LIBRARY_PATH|IPYTHONDIR|JUPYTER_(CONFIG|DATA|RUNTIME)_DIR|JUPYTER_PATH
    |(OMP|MKL|OPENBLAS|BLIS|NUMEXPR|NUMBA|VECLIB|GOTO|KMP|RAYON|POLARS)_\w+
    |CUDA_VISIBLE_DEVICES|CUDA_HOME|NVIDIA_VISIBLE_DEVICES
    |SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|MPLBACKEND|MPLCONFIGDIR
    |MALLOC_ARENA_MAX|GLIBC_TUNABLES""",
    re.VERBOSE,
)

_DEFAULTS = {"OMP_WAIT_POLICY": "PASSIVE"}  # threads that spin starve the fork that computes beside them

MARK = "JUPYTER_SANDBOX_MARK"
"""Holds the backend's id in all its processes, so that release finds those that left their process group."""


def base_environment(server: Mapping[str, str], python: str) -> dict[str, str]:
    """What every runtime on ``python`` starts with."""
    found = {name: value for name, value in server.items() if _ALLOWED.fullmatch(name)}
    environment = _DEFAULTS | found
    home = Path(python).parent
    environment["PATH"] = ":".join([str(home), *_without(environment.get("PATH", "/usr/bin:/bin"), home)])
    if (home.parent / "pyvenv.cfg").is_file():
        environment["VIRTUAL_ENV"] = str(home.parent)
    else:
        environment.pop("VIRTUAL_ENV", None)
    return environment


def _without(path: str, home: Path) -> list[str]:
    return [entry for entry in path.split(":") if entry and Path(entry) != home]
