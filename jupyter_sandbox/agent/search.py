"""Finding files by glob, and lines in them by regular expression.

Globs are those of ripgrep and of the shell: ``*``, ``?`` and ``[…]`` stay within one name, ``**`` spans any number of
directories, and none of them matches a leading dot: hidden files and directories are searched only where the pattern
itself has a name with a leading dot (``.*``, ``**/.git/**``). Case matters. What is found is files and links, never
directories; links are not followed. Directories and files that cannot be read are passed over, as ripgrep does.

In files, binary ones (a NUL in the first 8 KiB) are left out. Bytes that are not UTF-8 read as U+FFFD, in lines and in
the names of what is found.
"""

from __future__ import annotations

import codecs
import errno
import fnmatch
import os
import re
from collections.abc import Generator
from typing import Any

from .errors import AgentError, from_os_error, os_errors, shown
from .paths import GONE, check, open_beneath, open_regular_at, opened

Found = dict[str, Any]
"""``{"path", "line", "text"}``, the last two None without a text to look for."""

Steps = Generator[None, None, dict[str, Any]]
"""A search in small steps: whoever drives it may stop between any two."""

MAX_LINE = 1 << 20
"""Bytes; longer lines are searched in pieces of this length."""

SHOWN_LINE = 500
"""Characters of a line that are shown, around the match."""

_SNIFFED = 8192
_STEP_BYTES = 1 << 20
_STEP_ENTRIES = 256
_UNREADABLE = GONE | {errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EIO}


class Glob:
    """A pattern, as the set of its parts that could come next; works its way down a tree one name at a time."""

    def __init__(self, pattern: str) -> None:
        parts = [part for part in pattern.split("/") if part not in {"", "."}]
        problem = ""
        if pattern.startswith("/"):
            problem = "is absolute"
        elif ".." in parts:
            problem = "leads out of the directory"
        elif not parts or "\0" in pattern:
            problem = "matches nothing"
        elif len(parts) > 64:
            problem = "has more than 64 parts"
        if problem:
            raise AgentError(
                "InvalidRequest",
                f"the glob {shown(pattern)} {problem}",
                "Try a pattern such as '**/*.py'.",
                field="glob",
            )
        self._parts = [None if part == "**" else (part[0] == ".", _compile_part(part)) for part in parts]
        self.start = self._closed({0})

    def _closed(self, positions: set[int]) -> frozenset[int]:
        """``**`` may also stand for no directory at all."""
        closed = set(positions)
        for position in sorted(positions):
            at = position
            while at < len(self._parts) and self._parts[at] is None:
                at += 1
                closed.add(at)
        return frozenset(closed)

    def after(self, positions: frozenset[int], name: str) -> frozenset[int]:
        """Where the pattern stands once a name was met; empty: nothing can match."""
        hidden = name.startswith(".")
        found: set[int] = set()
        for position in positions:
            if position == len(self._parts):
                continue
            part = self._parts[position]
            if part is None:
                if not hidden:
                    found.add(position)
            elif part[0] == hidden and part[1].match(name):
                found.add(position + 1)
        return self._closed(found)

    def matched(self, positions: frozenset[int]) -> bool:
        """Whether a file whose last name led here matches."""
        return len(self._parts) in positions


def _compile_part(part: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(part))


def search(
    root: str, glob: str = "**/*", *, text: str | None = None, path: str = ".", max_results: int = 1000
) -> Steps:
    """
    Find files, or lines in them.

    Args:
        root: The runtime's root directory.
        glob: Relative to ``path``; see the module.
        text: A regular expression of Python's `re`, looked for in every line; one match per line.
        path: The directory to search, or one file (then the glob applies to its name).
        max_results: The most matches to return.

    Returns:
        A generator that yields None after every bounded piece of work (so that a caller can stop it, and serve others
        meanwhile) and returns ``{"matches": [{"path", "line", "text"}, …], "truncated": bool}``: paths relative to the
        root, in order of their names, directories after files; lines count from 1.

    Raises:
        AgentError: From the first step: ``InvalidRequest`` (glob, regular expression, path), ``PathNotFound``.

    """
    pattern = Glob(glob)
    expression = None
    if text is not None:
        try:
            expression = re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise AgentError(
                "InvalidRequest",
                f"the regular expression {shown(text)} is not valid: {error}",
                "Use the syntax of Python's re module, with a backslash before special characters.",
                field="text",
            ) from error
    matches: list[Found] = []
    files = _files(root, path, pattern)
    try:
        for found in files:
            if found is None:
                yield
                continue
            dir_fd, name, at = found
            if expression is None:
                matches.append({"path": _text(at), "line": None, "text": None})
            else:
                yield from _lines(dir_fd, name, at, expression, matches, max_results)
            if len(matches) > max_results:
                break
    finally:
        files.close()
    return {"matches": matches[:max_results], "truncated": len(matches) > max_results}


def finish(steps: Steps) -> dict[str, Any]:
    """Drive a search to its end."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: dict[str, Any] = stop.value
            return result


def _files(root: str, path: str, pattern: Glob) -> Generator[tuple[int, str, str] | None, None, None]:
    """The files that match: an open directory, the name in it, the path from the root; None after a piece of work."""
    here = "/".join(part for part in check(path).split("/") if part not in {"", "."})
    with opened(root, path, os.O_PATH) as base:
        try:
            os.close(os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=base))
        except NotADirectoryError:
            above, _, name = here.rpartition("/")
            if pattern.matched(pattern.after(pattern.start, name)):
                with opened(root, above or ".", os.O_RDONLY | os.O_DIRECTORY) as parent:
                    yield parent, name, here
            return
        except OSError as error:
            raise from_os_error(error, path) from error
        pending = [("", pattern.start)]
        while pending:
            yield None
            below, positions = pending.pop()
            try:
                fd = open_beneath(base, below or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except OSError as error:
                if error.errno in _UNREADABLE:
                    continue
                raise from_os_error(error, _join(here, below)) from error
            try:
                with os_errors(_join(here, below)), os.scandir(fd) as scan:
                    entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in scan)
                directories = []
                for count, (name, is_directory) in enumerate(entries, 1):
                    if count % _STEP_ENTRIES == 0:
                        yield None
                    after = pattern.after(positions, name)
                    if is_directory and after:
                        directories.append((_join(below, name), after))
                    elif not is_directory and pattern.matched(after):
                        yield fd, name, _join(_join(here, below), name)
                pending += reversed(directories)
            finally:
                os.close(fd)


def _lines(
    dir_fd: int, name: str, path: str, expression: re.Pattern[str], matches: list[Found], max_results: int
) -> Generator[None, None, None]:
    """Add a file's matching lines, up to one more than the limit, which tells that there was more."""
    try:
        fd = open_regular_at(dir_fd, name)
    except OSError as error:
        if error.errno in _UNREADABLE:
            return
        raise from_os_error(error, path) from error
    if fd is None:
        return
    with open(fd, "rb", buffering=1 << 16) as file, os_errors(path):
        if b"\0" in os.pread(fd, _SNIFFED, 0):
            return
        number, worked, whole = 1, 0, True
        while line := file.readline(MAX_LINE):
            if number == 1 and whole:
                line = line.removeprefix(codecs.BOM_UTF8)
            whole = line.endswith(b"\n")
            shown_line = line.rstrip(b"\r\n").decode("utf-8", "replace")
            if match := expression.search(shown_line):
                start = max(0, min(match.start() - SHOWN_LINE // 4, len(shown_line) - SHOWN_LINE))
                matches.append({"path": _text(path), "line": number, "text": shown_line[start : start + SHOWN_LINE]})
                if len(matches) > max_results:
                    return
            number += whole
            worked += len(line) + 64
            if worked > _STEP_BYTES:
                worked = 0
                yield


def _join(above: str, name: str) -> str:
    return f"{above}/{name}" if above and name else above or name


def _text(path: str) -> str:
    """A path that JSON can carry."""
    return os.fsencode(path).decode("utf-8", "replace")
