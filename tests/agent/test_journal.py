from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import threading

import pytest

from jupyter_sandbox.agent.frames import Channel, Frame
from jupyter_sandbox.agent.journal import JOURNAL, JournalReader, JournalWriter, RawOutput


@pytest.fixture
def ends(tmp_path):
    writer = JournalWriter(str(tmp_path))
    reader = JournalReader(str(tmp_path))
    yield writer, reader
    writer.close()
    reader.close()


def test_records_and_raw_output_come_in_the_order_they_were_made(ends):
    writer, reader = ends
    os.write(writer.stdout, b"one")
    writer.append(Channel.stream, [b"stdout", b"", b"two"])
    os.write(writer.stderr, b"three")
    os.write(writer.stdout, b"four")
    writer.append(Channel.iopub, [b"five"])
    os.write(writer.stdout, b"six")
    assert list(reader.poll(raw=False)) == [
        RawOutput("stdout", b"one"),
        Frame(Channel.stream, (b"stdout", b"", b"two")),
        RawOutput("stdout", b"four"),
        RawOutput("stderr", b"three"),
        Frame(Channel.iopub, (b"five",)),
    ]
    assert list(reader.poll(raw=False)) == []
    assert list(reader.poll(raw=True)) == [RawOutput("stdout", b"six")]


def test_a_reader_starts_behind_what_is_there(tmp_path):
    writer = JournalWriter(str(tmp_path))
    writer.append(Channel.op, [b"old"])
    os.write(writer.stdout, b"old")
    reader = JournalReader(str(tmp_path))
    writer.append(Channel.op, [b"new"])
    assert list(reader.poll(raw=True)) == [Frame(Channel.op, (b"new",))]
    writer.close()
    reader.close()


def test_a_poll_that_is_left_early_loses_nothing(ends):
    writer, reader = ends
    for number in range(3):
        writer.append(Channel.op, [b"%d" % number])
    assert next(reader.poll(raw=False)).parts == (b"0",)
    assert [frame.parts[0] for frame in reader.poll(raw=False)] == [b"1", b"2"]


def test_records_of_threads_and_forked_children_stay_whole(ends):
    writer, reader = ends
    payload = b"x" * 5000

    def write(mark: bytes) -> None:
        for _ in range(200):
            writer.append(Channel.stream, [mark, payload])

    threads = [threading.Thread(target=write, args=(b"%d" % n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pid = os.fork()
    if pid == 0:
        write(b"child")
        os._exit(0)
    write(b"parent")
    os.waitpid(pid, 0)
    seen = [frame.parts for frame in reader.poll(raw=False)]
    assert len(seen) == 1000
    assert {part[1] for part in seen} == {payload}
    assert sum(part[0] == b"child" for part in seen) == 200


def test_a_full_disk_leaves_no_half_record(ends, tmp_path):
    writer, reader = ends
    writer.append(Channel.op, [b"before"])
    size = (tmp_path / JOURNAL).stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
    try:
        with pytest.raises(OSError) as failure:
            writer.append(Channel.op, [b"x" * 10_000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert failure.value.errno == errno.ENOSPC
    writer.append(Channel.op, [b"after"])
    assert [frame.parts for frame in reader.poll(raw=False)] == [(b"before",), (b"after",)]


def test_what_was_read_is_given_back_to_the_disk(ends, tmp_path):
    writer, reader = ends
    for _ in range(20):
        writer.append(Channel.stream, [b"stdout", b"", b"x" * (1 << 20)])
        for _ in reader.poll(raw=False):
            pass
    found = (tmp_path / JOURNAL).stat()
    assert found.st_size > 20 << 20
    assert found.st_blocks * 512 < 8 << 20


def test_a_child_process_that_inherits_the_descriptor_is_read(ends):
    writer, reader = ends
    subprocess.run([sys.executable, "-c", "print('hello')"], stdout=writer.stdout, check=True)
    assert list(reader.poll(raw=True)) == [RawOutput("stdout", b"hello\n")]
