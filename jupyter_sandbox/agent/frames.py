"""The framed protocol of the agent: messages of several binary parts on a channel.

A frame is ``length:u64 channel:u8 count:u16 (size:u32)*count part*count``, big-endian; ``length`` counts what follows
it. Jupyter messages travel as their own parts (signature, header, parent header, metadata, content, buffers); our own
requests and answers as one JSON part, with binary parts after it.
"""

from __future__ import annotations

import asyncio
import functools
import json
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

_LENGTH = struct.Struct("!Q")
_HEAD = struct.Struct("!BH")
_SIZE = struct.Struct("!I")

MAX_FRAME = 1 << 31
"""Bytes; a longer frame is a broken peer, not a message."""


class Channel(IntEnum):
    """What a frame is about."""

    op = 1  # our own requests and answers
    shell = 2  # Jupyter's shell channel, both ways
    control = 3
    stdin = 4
    iopub = 5
    stream = 6  # parts: stream name, parent's msg_id, UTF-8 text


class Frame(NamedTuple):
    """One message."""

    channel: Channel
    parts: tuple[bytes, ...]

    def json(self) -> dict[str, Any]:
        """The first part of an ``op`` frame, as the object that it is."""
        value = json.loads(self.parts[0])
        if not isinstance(value, dict):
            raise ValueError("an op frame starts with a JSON object")
        return value


class BrokenFrame(ValueError):
    """The bytes are no frame: the peer is not ours, or died while it wrote."""


def encode(channel: Channel, parts: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """A frame as buffers for ``writev`` or ``sendmsg``; the parts are not copied."""
    sizes = [part.nbytes if isinstance(part, memoryview) else len(part) for part in parts]
    head = _whole_head(len(sizes))
    return [head.pack(head.size - _LENGTH.size + sum(sizes), channel, len(sizes), *sizes), *parts]


@functools.cache
def _whole_head(count: int) -> struct.Struct:
    return struct.Struct(f"!QBH{count}I")


def encode_op(value: dict[str, Any], *binary: bytes) -> list[bytes | memoryview]:
    """An ``op`` frame: a JSON object and binary parts."""
    return encode(Channel.op, [json.dumps(value).encode(), *binary])


def decode(body: bytes | memoryview) -> Frame:
    """The frame in ``body`` (all that followed the length).

    Raises:
        BrokenFrame: The sizes do not add up, or the channel is unknown.
    """
    view = memoryview(body)
    try:
        channel, count = _HEAD.unpack_from(view)
        offset = _HEAD.size + _SIZE.size * count
        parts = []
        for index in range(count):
            (size,) = _SIZE.unpack_from(view, _HEAD.size + _SIZE.size * index)
            parts.append(bytes(view[offset : offset + size]))
            offset += size
        if offset != len(view):
            raise BrokenFrame(f"a frame of {len(view)} bytes names {offset}")
        return Frame(Channel(channel), tuple(parts))
    except (struct.error, ValueError) as error:
        raise BrokenFrame(str(error)) from error


class FrameDecoder:
    """Frames out of a byte stream that comes in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that ``data`` completes.

        Raises:
            BrokenFrame: What came is no frame; the stream cannot be used any more.
        """
        self._buffer += data
        frames = []
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            if length > MAX_FRAME:
                raise BrokenFrame(f"a frame of {length} bytes")
            end = start + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            frames.append(decode(bytes(self._buffer[start + _LENGTH.size : end])))
            start = end
        del self._buffer[:start]
        return frames


async def read_frame(reader: asyncio.StreamReader) -> Frame | None:
    """The next frame, or None when the peer closed between two frames.

    Raises:
        BrokenFrame: The bytes are no frame, or the peer closed inside one.
    """
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MAX_FRAME:
            raise BrokenFrame(f"a frame of {length} bytes")
        return decode(await reader.readexactly(length))
    except asyncio.IncompleteReadError as error:
        if error.partial or error.expected != _LENGTH.size:
            raise BrokenFrame("the peer closed inside a frame") from error
        return None
