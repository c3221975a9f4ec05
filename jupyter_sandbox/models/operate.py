"""What runs inside a runtime: cells, commands, files, search, export."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, model_validator

from jupyter_sandbox.models.base import Record, Request


class CellRequest(Request):
    """``POST /api/v1/runtimes/{id}/cells``: answered by `CellEvent` as JSON lines."""

    code: str
    timeout_s: float | None = Field(default=None, gt=0, description="seconds, then the cell is interrupted")
    silent: bool = False
    store_history: bool = True


class CellOutput(Record):
    """
    One output in nbformat's shape: ``stream``, ``display_data``, ``execute_result`` or ``error``.

    ``update_display_data`` and ``clear_output`` come through too, as the Jupyter messages that they are; and so that an
    update finds what it updates, ``display_data`` keeps its ``transient``, which nbformat does not have.
    """

    event: Literal["output"] = "output"
    output: dict[str, Any] = Field(description="output_type plus that type's nbformat fields")


class CellError(Record):
    """The exception that ended a cell."""

    ename: str
    evalue: str
    traceback: tuple[str, ...] = ()


class CellDone(Record):
    """The last event of a cell that ran."""

    event: Literal["done"] = "done"
    status: Literal["ok", "error", "aborted"]
    execution_count: int | None = None
    error: CellError | None = None
    timed_out: bool = False
    elapsed_ms: float = 0.0


class Failed(Record):
    """The last event when the operation itself failed (not the user's code): an error body of ours."""

    event: Literal["failed"] = "failed"
    error: dict[str, Any]
    http_status: int = 500


CellEvent = Annotated[CellOutput | CellDone | Failed, Field(discriminator="event")]
CELL_EVENT: TypeAdapter[CellOutput | CellDone | Failed] = TypeAdapter(CellEvent)


class CellResult(Record):
    """
    A whole cell, collected.

    Attributes:
        text: What it wrote to stdout, and after it the plain text of its result, if it had one.
        outputs: nbformat outputs in order, neighbouring stream writes joined.

    """

    status: Literal["ok", "error", "aborted"]
    text: str
    outputs: tuple[dict[str, Any], ...]
    execution_count: int | None
    error: CellError | None
    timed_out: bool = False
    elapsed_ms: float = 0.0


class CompleteRequest(Request):
    """``POST /api/v1/runtimes/{id}/complete``."""

    code: str
    cursor_pos: int | None = Field(default=None, ge=0, description="in characters; default: the end of the code")


class CompleteResult(Record):
    """Jupyter's complete_reply."""

    matches: tuple[str, ...]
    cursor_start: int
    cursor_end: int
    metadata: dict[str, Any] = Field(default_factory=dict)


class ExecRequest(Request):
    """``POST /api/v1/runtimes/{id}/exec``: exactly one of ``argv`` and ``shell``; answered by `ExecEvent` lines."""

    argv: tuple[str, ...] | None = Field(default=None, min_length=1)
    shell: str | None = Field(default=None, min_length=1, description="a line for /bin/sh -c")
    env: dict[str, str] = Field(default_factory=dict, description="added to the runtime's environment")
    cwd: str | None = Field(default=None, description="relative to the runtime's working directory")
    stdin: str | None = None
    timeout_s: float | None = Field(default=None, gt=0, description="seconds, then the whole process group ends")

    @model_validator(mode="after")
    def _one_command(self) -> ExecRequest:
        if (self.argv is None) == (self.shell is None):
            raise ValueError("give exactly one of argv and shell")
        return self


class ExecOutput(Record):
    """A piece of output, decoded as UTF-8 with U+FFFD for what is not."""

    event: Literal["output"] = "output"
    stream: Literal["stdout", "stderr"]
    text: str


class ExecDone(Record):
    """The last event: ``exit_code`` is negative for a signal, as in `subprocess`."""

    event: Literal["done"] = "done"
    exit_code: int
    timed_out: bool = False
    elapsed_ms: float = 0.0


ExecEvent = Annotated[ExecOutput | ExecDone | Failed, Field(discriminator="event")]
EXEC_EVENT: TypeAdapter[ExecOutput | ExecDone | Failed] = TypeAdapter(ExecEvent)


class ExecResult(Record):
    """A whole command, collected."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool
    elapsed_ms: float


class PathRequest(Request):
    """A path inside the runtime, relative to its working directory (``mkdir``, ``stat``)."""

    path: str = Field(min_length=1, max_length=4096)


class FileStat(Record):
    """``POST /api/v1/runtimes/{id}/stat``."""

    path: str
    type: Literal["file", "directory", "symlink", "other"]
    size: int
    mode: int = Field(description="permission bits")
    modified_at_ms: int


class TempPathRequest(Request):
    """``POST /api/v1/runtimes/{id}/temp-path``: a fresh, empty file (or directory) inside the runtime."""

    prefix: str = Field(default="tmp", max_length=64, pattern=r"^[A-Za-z0-9._-]*$")
    suffix: str = Field(default="", max_length=64, pattern=r"^[A-Za-z0-9._-]*$")
    directory: bool = False


class PathResult(Record):
    """A path, relative to the runtime's working directory."""

    path: str


class SearchRequest(Request):
    """``POST /api/v1/runtimes/{id}/search``: file names by glob, and text in them when ``text`` is given."""

    glob: str = Field(default="**/*", max_length=1024)
    text: str | None = Field(default=None, min_length=1, description="a Python regular expression")
    path: str = Field(default=".", max_length=4096)
    max_results: int = Field(default=1000, ge=1, le=100_000)


class SearchMatch(Record):
    """A file that matched, with the line when text was searched."""

    path: str
    line: int | None = None
    text: str | None = None


class SearchResult(Record):
    """``truncated`` says that there was more than ``max_results``."""

    matches: tuple[SearchMatch, ...]
    truncated: bool


class ExportRequest(Request):
    """``POST /api/v1/runtimes/{id}/export``: answered by a tar stream."""

    path: str = Field(default=".", max_length=4096)
