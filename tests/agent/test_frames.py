from __future__ import annotations

import asyncio

import pytest

from jupyter_sandbox.agent.frames import BrokenFrame, Channel, FrameDecoder, decode, encode, encode_op, read_frame


def whole(channel: Channel, *parts: bytes) -> bytes:
    return b"".join(encode(channel, parts))


@pytest.mark.parametrize("parts", [(), (b"",), (b"a", b"", b"c" * 70_000)])
def test_a_frame_comes_back_as_it_was(parts):
    data = whole(Channel.iopub, *parts)
    frame = decode(data[8:])
    assert frame.channel is Channel.iopub
    assert frame.parts == parts


def test_memoryviews_of_wider_items_count_in_bytes():
    view = memoryview(bytearray(80)).cast("d")
    frame = decode(b"".join(encode(Channel.shell, [view]))[8:])
    assert frame.parts == (bytes(80),)


def test_frames_come_out_of_pieces_of_any_size():
    data = whole(Channel.shell, b"one") + whole(Channel.op, b'{"two": 2}', b"x")
    for size in range(1, len(data) + 1):
        decoder = FrameDecoder()
        frames = [f for start in range(0, len(data), size) for f in decoder.feed(data[start : start + size])]
        assert [frame.channel for frame in frames] == [Channel.shell, Channel.op]
        assert frames[1].json() == {"two": 2}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x01",
        b"\x63\x00\x00",  # no such channel
        b"\x01\x00\x01\x00\x00\x00\x09short",
        b"\x01\x00\x00trailing",
    ],
)
def test_what_is_no_frame_is_refused(body):
    with pytest.raises(BrokenFrame):
        decode(body)


def test_an_absurd_length_is_refused_before_it_is_awaited():
    with pytest.raises(BrokenFrame):
        FrameDecoder().feed(b"\xff" * 8)


def test_an_op_frame_must_start_with_an_object():
    frame = decode(whole(Channel.op, b"[1]")[8:])
    with pytest.raises(ValueError, match="object"):
        frame.json()


async def test_the_end_between_frames_is_the_end_and_inside_one_is_an_error():
    data = b"".join(encode_op({"a": 1}))
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    assert (await read_frame(reader)).json() == {"a": 1}
    assert await read_frame(reader) is None
    for cut in (4, len(data) - 1):
        reader = asyncio.StreamReader()
        reader.feed_data(data[:cut])
        reader.feed_eof()
        with pytest.raises(BrokenFrame):
            await read_frame(reader)
