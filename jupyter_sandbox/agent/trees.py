"""Whole directory trees: copy one for a checkpoint, remove one whatever its modes and depth.

Trees hold what users made, and processes of theirs may be changing them, so everything is opened relative to an open
directory without following links. Nothing here changes the process (no chdir, no umask): it may run in a thread.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from dataclasses import dataclass, field

from .errors import from_os_error, os_errors
from .paths import GONE, open_beneath, open_regular_at

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FICLONE = 0x40049409
_PIECE = 1 << 30
_NO_CLONE = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.ETXTBSY}
_NO_KERNEL_COPY = {errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EPERM}
_TRIES = 100


def copy_tree(source: str, target: str) -> int:
    """
    Copy a directory tree to a path that does not exist yet.

    Kept: permission bits, times of modification, symbolic links as they are, hard links within the tree, holes in
    files, fifos; and owners, for root. Left out: sockets and device nodes, extended attributes. Blocks are shared
    (reflinks) where the file system can. What vanishes meanwhile is not copied.

    Args:
        source: The directory to copy.
        target: The directory to make; its parent exists.

    Returns:
        Bytes of file content in the copy, without holes.

    Raises:
        AgentError: ``StorageFull``, ``Forbidden`` and the like; nothing of the target is left then.

    """
    with os_errors(target):
        os.mkdir(target, 0o700)
    try:
        return _Copy(source, target).run()
    except BaseException:
        remove_tree(target)
        raise


@dataclass
class _Copy:
    source: str
    target: str
    copied: int = 0
    clones: bool = True  # until the file system says that it has none
    first_names: dict[tuple[int, int], str] = field(default_factory=dict)  # of files with several, by device and inode

    def run(self) -> int:
        with os_errors(self.source):
            source = os.open(self.source, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os_errors(self.target):
                target = os.open(self.target, _DIRECTORY)
            try:
                pending = ["."]
                while pending:
                    pending += self._directory(source, target, pending.pop())
            finally:
                os.close(target)
        finally:
            os.close(source)
        return self.copied

    def _directory(self, source_root: int, target_root: int, path: str) -> list[str]:
        """Copy what a directory holds, except what its subdirectories hold; returns their paths."""
        below: list[str] = []
        with os_errors(path):
            try:
                source = open_beneath(source_root, path, _DIRECTORY)
            except OSError as error:
                if error.errno in GONE and path != ".":
                    return below
                raise
            try:
                target = open_beneath(target_root, path, _DIRECTORY)
                try:
                    with os.scandir(source) as entries:
                        for entry in entries:
                            at = entry.name if path == "." else f"{path}/{entry.name}"
                            try:
                                if self._entry(source, target, target_root, entry, at):
                                    below.append(at)
                            except OSError as error:
                                raise from_os_error(error, at) from error
                    _finish(target, os.fstat(source))  # its own entries are all there now: its time stays
                finally:
                    os.close(target)
            finally:
                os.close(source)
        return below

    def _entry(self, source: int, target: int, target_root: int, entry: os.DirEntry[str], at: str) -> bool:
        """Copy one entry of a directory; True for a subdirectory, which is made empty."""
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        name, kind = entry.name, stat.S_IFMT(found.st_mode)
        if kind == stat.S_IFDIR:
            os.mkdir(name, 0o700, dir_fd=target)
            return True
        if kind not in {stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO}:
            return False
        inode = (found.st_dev, found.st_ino)
        if found.st_nlink > 1:
            first = self.first_names.setdefault(inode, at)
            if first != at:
                os.link(first, name, src_dir_fd=target_root, dst_dir_fd=target, follow_symlinks=False)
                return False
        if kind == stat.S_IFREG:
            if not self._file(source, target, name):
                self.first_names.pop(inode, None)
            return False
        if kind == stat.S_IFLNK:
            try:
                link = os.readlink(name, dir_fd=source)
            except OSError as error:
                if error.errno in GONE | {errno.EINVAL}:  # EINVAL: no link any more
                    return False
                raise
            os.symlink(link, name, dir_fd=target)
        else:
            os.mkfifo(name, 0o600, dir_fd=target)
        _finish_unopened(target, name, found)
        return False

    def _file(self, source: int, target: int, name: str) -> bool:
        """Copy a regular file; False when it is gone, or no regular file any more."""
        fd = open_regular_at(source, name)
        if fd is None:
            return False
        try:
            now = os.fstat(fd)
            copy = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=target)
            try:
                if now.st_size:
                    self.copied += self._content(fd, copy, now)
                _finish(copy, now)
            finally:
                os.close(copy)
        finally:
            os.close(fd)
        return True

    def _content(self, source: int, target: int, found: os.stat_result) -> int:
        if self.clones:
            try:
                fcntl.ioctl(target, _FICLONE, source)
            except OSError as error:
                if error.errno not in _NO_CLONE:
                    raise
                self.clones = error.errno == errno.ETXTBSY  # that one is about this file only
            else:
                return found.st_size
        if found.st_blocks * 512 >= found.st_size:
            return _copy_range(source, target, 0, found.st_size)
        copied = 0
        for start, end in _data_ranges(source, found.st_size):
            copied += _copy_range(source, target, start, end - start)
        os.ftruncate(target, found.st_size)  # a hole at the end
        return copied


def _finish(fd: int, found: os.stat_result) -> None:
    """Owner first (a change of it clears set-id bits), then the mode, then the time."""
    _own(fd, found)
    os.fchmod(fd, stat.S_IMODE(found.st_mode))
    os.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns))


def _finish_unopened(dir_fd: int, name: str, found: os.stat_result) -> None:
    """The same for a link or a fifo that was just made in a directory of ours."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=dir_fd)
    try:
        if stat.S_ISFIFO(found.st_mode):
            _own(f"/proc/self/fd/{fd}", found)
            os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(found.st_mode))  # fchmod refuses an O_PATH descriptor
        os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=dir_fd, follow_symlinks=False)
    finally:
        os.close(fd)


def _own(what: int | str, found: os.stat_result) -> None:
    if os.geteuid() != 0 or not (found.st_uid or found.st_gid):
        return
    try:
        os.chown(what, found.st_uid, found.st_gid)
    except OSError as error:
        # Root of a user namespace cannot give files to owners that the namespace does not map.
        if error.errno not in {errno.EPERM, errno.EINVAL}:
            raise


def _data_ranges(fd: int, size: int) -> list[tuple[int, int]]:
    """The parts of a file that are not holes."""
    ranges: list[tuple[int, int]] = []
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                break
            if error.errno == errno.EINVAL:  # the file system does not know its holes
                return [(0, size)]
            raise
        end = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        if start < end:
            ranges.append((start, end))
    return ranges


def _copy_range(source: int, target: int, start: int, size: int) -> int:
    """Copy bytes in the kernel; fewer when the file has shrunk."""
    done = 0
    by_range = hasattr(os, "copy_file_range")
    os.lseek(target, start, os.SEEK_SET)
    while done < size:
        count = min(size - done, _PIECE)
        if by_range:
            try:
                moved = os.copy_file_range(source, target, count, offset_src=start + done)
            except OSError as error:
                if error.errno not in _NO_KERNEL_COPY:
                    raise
                by_range = False
                continue
        else:
            moved = os.sendfile(target, source, start + done, count)
        if not moved:
            break
        done += moved
    return done


def remove_tree(path: str) -> None:
    """
    Remove a file or a whole tree, also from read-only directories of ours; one that is gone already is fine.

    Raises:
        AgentError: It belongs to somebody else, or is in use (a mount point).

    """
    above, name = os.path.split(os.path.abspath(path))
    with os_errors(path):
        try:
            fd = os.open(above, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return
        try:
            remove_entry(fd, name)
        except FileNotFoundError:
            return
        finally:
            os.close(fd)


def remove_entry(dir_fd: int, name: str) -> None:
    """
    Remove an entry of an open directory, and when it is a directory all that is in it. Links are never followed.

    Directories found on the way are moved up to the top one and emptied there in turn: two descriptors and no
    recursion whatever the depth, and no path that could be too long.

    Raises:
        OSError: ``ENOENT`` when there is no such entry; what cannot be removed.

    """
    if not stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=dir_fd)
        return
    top = _open_writable(dir_fd, name)
    try:
        prefix = f".{os.urandom(8).hex()}-"
        moved = 0
        for _ in range(_TRIES):
            pending = _unlink_files(top)
            while pending:
                inner = pending.pop()
                try:
                    fd = _open_writable(top, inner)
                except FileNotFoundError:
                    continue
                try:
                    for below in _unlink_files(fd):
                        if _gone(below, fd):
                            continue
                        moved += 1
                        _move(fd, below, top, f"{prefix}{moved}")
                        pending.append(f"{prefix}{moved}")
                finally:
                    os.close(fd)
                _gone(inner, top)  # if somebody wrote into it meanwhile, the next round finds it
            if _gone(name, dir_fd):
                return
    finally:
        os.close(top)
    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))


def _unlink_files(fd: int) -> list[str]:
    """Unlink all but the directories of an open directory; returns their names."""
    directories = []
    with os.scandir(fd) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
                continue
            try:
                os.unlink(entry.name, dir_fd=fd)
            except FileNotFoundError:
                continue
            except IsADirectoryError:
                directories.append(entry.name)
    return directories


def _gone(name: str, dir_fd: int) -> bool:
    """Remove a directory if it is empty; whether it is gone."""
    try:
        os.rmdir(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
        return False
    return True


def _move(source: int, name: str, target: int, new_name: str) -> None:
    try:
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
    except PermissionError:  # moving a directory writes its "..": it must be writable itself
        _make_writable(source, name)
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)


def _open_writable(dir_fd: int, name: str) -> int:
    """Open a directory, made ours to change if its mode forbids that."""
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=dir_fd)
    except PermissionError:
        _make_writable(dir_fd, name)
        return os.open(name, _DIRECTORY, dir_fd=dir_fd)
    try:
        mode = os.fstat(fd).st_mode
        if mode & 0o700 != 0o700:
            os.fchmod(fd, stat.S_IMODE(mode) | 0o700)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _make_writable(dir_fd: int, name: str) -> None:
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=dir_fd)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o700)  # fchmod refuses an O_PATH descriptor
    finally:
        os.close(fd)
