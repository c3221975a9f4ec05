"""The server's end of a worker: requests over its link, what it says from its journal."""

from __future__ import annotations

import asyncio
import codecs
import itertools
import os
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_client.session import Session

from jupyter_sandbox.agent.frames import BrokenFrame, Channel, Frame, encode, encode_op
from jupyter_sandbox.agent.journal import STDERR, STDOUT, JournalReader, RawOutput
from jupyter_sandbox.agent.processes import ProcessId, exit_sentence
from jupyter_sandbox.agent.sockets import connect_in
from jupyter_sandbox.agent.worker import CANNOT_WRITE, HANDLED, LINK
from jupyter_sandbox.engines.fork.errors import agent_error
from jupyter_sandbox.errors import RuntimeFailed, SandboxError, SessionBusy, StorageFull

_LOOK_EVERY_S = 0.05
_NOTE_WAIT_S = 2.0
_MOST_WAITING = 32 << 20  # characters
_MOST_JOINED = 1 << 20

Message = dict[str, Any]


class WorkerLink:
    """A connection to one worker. One cell at a time; the caller sees to that.

    Attributes:
        process: The worker's identity.
    """

    def __init__(self, directory: Path, state_dir: Path, process: ProcessId) -> None:
        self.process = process
        self._directory = directory
        self._state_dir = state_dir
        self._session = Session(username="")
        self._session.key = b""  # the link is a 0700 directory: no signatures
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._conversation: _Conversation | None = None
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(cls, directory: Path, state_dir: Path, process: ProcessId) -> WorkerLink:
        """Connect to the worker that serves ``directory``.

        Raises:
            RuntimeFailed: It is gone.
        """
        link = cls(directory, state_dir, process)
        try:
            link._pidfd = os.pidfd_open(process.pid)
            if not process.alive():
                os.close(link._pidfd)
                raise ProcessLookupError
            link._journal = JournalReader(str(directory))
            connection = connect_in(str(directory), LINK, timeout=5)
        except OSError as error:
            reason = exit_sentence(str(state_dir), process) or "its process is gone"
            raise RuntimeFailed(f"The runtime has failed: {reason}") from error
        connection.setblocking(False)
        link._reader, link._writer = await asyncio.open_unix_connection(sock=connection)
        asyncio.get_running_loop().add_reader(link._pidfd, link._process_ended)
        link._tasks = [asyncio.create_task(link._follow()), asyncio.create_task(link._look())]
        return link

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _journal: JournalReader
    _pidfd: int

    async def close(self) -> None:
        """Let go of the worker, which runs on."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pidfd)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._end("the server let go of it")
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
        self._journal.close()
        os.close(self._pidfd)

    async def ended(self) -> str:
        """Wait until the worker ends by itself; returns how, in a sentence."""
        return await asyncio.shield(self._ended)

    # Requests

    async def request(self, op: str, *, patience_s: float | None = None, **arguments: Any) -> dict[str, Any]:
        """One request of ours, and its answer.

        Args:
            op: What is asked.
            patience_s: Seconds after which a worker that does not answer counts as busy; None: wait for ever.
            arguments: Of ``op``.

        Raises:
            SandboxError: The worker refuses.
            SessionBusy: It does not answer: it runs a cell that began before this server did.
            RuntimeFailed: The worker ended.
        """
        number = next(self._ids)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            await self._write(encode_op({"op": op, "id": number, **arguments}))
            async with asyncio.timeout(patience_s):
                value = await answer
        except TimeoutError:
            raise SessionBusy(
                "The runtime is running a cell that began under an earlier server",
                remedy="Wait until it ends, or interrupt it",
                operation="cell",
            ) from None
        finally:
            del self._answers[number]
        if "error" in value:
            raise agent_error(value)
        return value

    async def converse(self, kind: str, content: Message) -> AsyncGenerator[Message, None]:
        """Send a request of Jupyter's shell channel; yields its messages until it was handled.

        Output of threads and children that still print goes to the request that runs.

        Raises:
            RuntimeFailed: The worker ended.
        """
        message = self._session.msg(kind, content)
        conversation = self._conversation = _Conversation(message["header"]["msg_id"])
        try:
            await self._write(encode(Channel.shell, self._session.serialize(message)))
            while not isinstance(piece := await conversation.get(), SandboxError):
                if piece is None:
                    return
                yield piece
            raise piece
        finally:
            self._conversation = None

    async def _write(self, buffers: Sequence[bytes | memoryview]) -> None:
        if not self._ended.done():
            try:
                self._writer.write(b"".join(buffers))
                await self._writer.drain()
            except ConnectionError:
                await self.ended()
        if self._ended.done():
            raise _failed(self._ended.result())

    # What it says

    async def _follow(self) -> None:
        while signs := await self._reader.read(1 << 16):
            self._poll(raw=False)
            if CANNOT_WRITE in signs:
                self._cannot_write()

    def _cannot_write(self) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(_full())
        if self._conversation is not None:
            self._conversation.end(_full())

    async def _look(self) -> None:
        """While a request runs: output that comes without a wake-up."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if self._conversation is not None and not self._poll(raw=False):
                self._poll(raw=True)

    def _poll(self, *, raw: bool) -> bool:
        some = False
        try:
            for item in self._journal.poll(raw=raw):
                some = True
                self._take(item)
                if self._conversation is not None and self._conversation.full:
                    break
        except BrokenFrame as error:
            self._end(f"its journal is damaged ({error})")
        return some

    def _take(self, item: Frame | RawOutput) -> None:
        conversation = self._conversation
        if isinstance(item, RawOutput):
            if conversation is not None:
                conversation.raw(item)
        elif item.channel is Channel.op:
            value = item.json()
            if value.get("event") == HANDLED and conversation is not None and value["msg_id"] == conversation.msg_id:
                conversation.end(_full() if value["lost"] else None)
            answer = self._answers.get(value.get("id", 0))
            if answer is not None and not answer.done():
                answer.set_result(value)
        elif conversation is None:
            return  # output between two requests: nobody asked
        elif item.channel is Channel.stream:
            name, _, text = item.parts
            conversation.text(name.decode(), text.decode(errors="replace"))
        elif item.channel in {Channel.shell, Channel.iopub}:
            _, parts = self._session.feed_identities(list(item.parts))
            conversation.message(self._session.deserialize(parts))

    # Its end

    def _process_ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self._tasks.append(asyncio.create_task(self._note_the_end()))

    async def _note_the_end(self) -> None:
        deadline = asyncio.get_running_loop().time() + _NOTE_WAIT_S
        while (sentence := exit_sentence(str(self._state_dir), self.process)) is None:
            if asyncio.get_running_loop().time() > deadline:
                sentence = "its process ended"
                break
            await asyncio.sleep(0.005)
        self._poll(raw=True)  # its last words
        self._end(sentence)

    def _end(self, reason: str) -> None:
        if self._ended.done():
            return
        self._ended.set_result(reason)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(_failed(reason))
        if self._conversation is not None:
            self._conversation.end(_failed(reason))


def _full() -> StorageFull:
    return StorageFull(
        "The runtime's answer could not be written: the disk is full",
        remedy="Free some disk space; the runtime keeps its state",
    )


def _failed(reason: str) -> RuntimeFailed:
    return RuntimeFailed(f"The runtime has failed: {reason}", remedy="Check out one of its checkpoints, or close it")


class _Text:
    """Neighbouring writes to one stream, joined while nobody fetched them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        self._pieces: list[str] = []

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self.size += len(text)

    def message(self) -> Message:
        return {"msg_type": "stream", "content": {"name": self.name, "text": "".join(self._pieces)}}


class _Conversation:
    """One shell request: its messages in order, until the worker says that it was handled.

    Attributes:
        msg_id: The request's.
        full: Nobody fetches what is here; what comes after it waits in the journal.
    """

    def __init__(self, msg_id: str) -> None:
        self.msg_id = msg_id
        self._items: deque[Message | _Text | SandboxError | None] = deque()
        self._some = asyncio.Event()
        self._size = 0
        self._decoders: dict[str, codecs.IncrementalDecoder] = {
            name: codecs.getincrementaldecoder("utf-8")("replace") for name in (STDOUT, STDERR)
        }
        self._started = False

    @property
    def full(self) -> bool:
        return self._size > _MOST_WAITING

    async def get(self) -> Message | SandboxError | None:
        """The next message; None at the end."""
        while not self._items:
            self._some.clear()
            await self._some.wait()
        item = self._items.popleft()
        if isinstance(item, _Text):
            self._size -= item.size
            return item.message()
        return item

    def _put(self, item: Message | _Text | SandboxError | None) -> None:
        self._items.append(item)
        self._some.set()

    def text(self, name: str, text: str) -> None:
        if not self._started:
            return  # of what ran before
        last = self._items[-1] if self._items else None
        if not isinstance(last, _Text) or last.name != name or last.size > _MOST_JOINED:
            last = _Text(name)
            self._put(last)
        last.add(text)
        self._size += len(text)

    def raw(self, output: RawOutput) -> None:
        text = self._decoders[output.name].decode(output.data)
        if text:
            self.text(output.name, text)

    def message(self, message: Message) -> None:
        self._started = self._started or message["parent_header"].get("msg_id") == self.msg_id
        if self._started:
            self._put(message)

    def end(self, error: SandboxError | None) -> None:
        """Nothing more comes; with an error, what came is not all."""
        self._put(error)
