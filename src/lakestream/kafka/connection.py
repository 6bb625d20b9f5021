"""One client connection: frames in, answers out in the order of their requests.

A frame's memory is reserved from the budget before its buffer exists. While the
budget is spent, too many requests wait or the client does not read its answers, the
socket is not read. One task admits requests in arrival order; what they wait for runs
side by side. A lost connection ends what only reads; what writes goes on without it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable
from functools import partial
from typing import Any, cast

from lakestream.errors import LakestreamError
from lakestream.kafka import codec
from lakestream.kafka.api import Context, Door, Reply
from lakestream.kafka.codec import Prefix, Wire
from lakestream.kafka.errors import MalformedRequest
from lakestream.kafka.framing import Framer
from lakestream.kafka.p18_api_versions import API as API_VERSIONS
from lakestream.kafka.p18_api_versions import unsupported_version
from lakestream.objects import Buffer

log = logging.getLogger(__name__)


class _Slot:
    """The place of one request in the order of answers."""

    __slots__ = ("abandoned", "answer", "done")

    def __init__(self) -> None:
        self.done = False
        self.abandoned = False
        self.answer: list[Buffer] | None = None


class Connection(asyncio.BufferedProtocol):
    def __init__(self, door: Door, connections: set["Connection"]) -> None:
        self._door = door
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._framer = Framer()
        self._queue: deque[memoryview] = deque()
        self._slots: deque[_Slot] = deque()
        self._tasks: set[asyncio.Task[list[Buffer] | None]] = set()
        self._readers: set[asyncio.Task[list[Buffer] | None]] = set()
        self._host = self._client = "?"
        self._work: asyncio.Future[None] | None = None
        self._budget_wait: asyncio.Task[None] | None = None
        self._reading = self._writable = True
        self._ending = self._lost = False
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._last_byte_s = self._loop.time()
        self._transport: asyncio.Transport
        self._admission: asyncio.Task[None]

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._door.settings.write_high_water_bytes)
        peer = transport.get_extra_info("peername")
        if peer:
            self._host, self._client = peer[0], f"{peer[0]}:{peer[1]}"
        self._connections.add(self)
        self._admission = self._loop.create_task(self._admit_all())
        self._admission.add_done_callback(self._admission_ended)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._framer.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._last_byte_s = self._loop.time()
        self._framer.advance(nbytes)
        self._take_frames()

    def eof_received(self) -> None:
        """The client is gone, or will be once it has read what it asked for: the transport closes."""

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._wake()
        self._take_frames()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self.closed.set_result(None)
        self._connections.discard(self)
        self._admission.cancel()
        if self._budget_wait is not None:
            self._budget_wait.cancel()
        for task in list(self._readers):
            task.cancel()
        for frame in self._queue:
            self._door.streams.budget.release(len(frame))
        self._queue.clear()
        self._slots.clear()
        self._door.streams.budget.release(self._framer.discard())

    # What the server calls

    def finish(self) -> None:
        """Takes no further request; closes once those that were taken are answered."""
        self._ending = True
        self._pause()
        for task in list(self._readers):
            task.cancel()
        self._close_if_finished()

    def abort(self) -> None:
        self._transport.abort()

    def sweep(self, now_s: float) -> None:
        """Closes a client that stopped in the middle of a request, or says nothing for very long."""
        silent_ms = (now_s - self._last_byte_s) * 1000
        settings = self._door.settings
        if self._reading and self._framer.mid_frame and silent_ms > settings.frame_stall_ms:
            self._close(f"no byte of a started request for {silent_ms:.0f} ms")
        elif not self._slots and not self._queue and silent_ms > settings.idle_connection_ms:
            self._transport.close()

    # Reading

    def _take_frames(self) -> None:
        """Moves frames from the socket to the queue as long as they may be held."""
        if self._lost or self._ending or self._transport.is_closing():
            return
        framer, budget, settings = self._framer, self._door.streams.budget, self._door.settings
        while True:
            frame = framer.take()
            if frame is not None:
                self._queue.append(frame)
                self._wake()
            size_bytes = framer.next_size()
            if size_bytes is None:
                self._resume()
                return
            if size_bytes < 0 or size_bytes > settings.max_frame_bytes:
                self._close(f"a request of {size_bytes} bytes: at most {settings.max_frame_bytes} are taken")
                return
            if not self._writable or len(self._slots) + len(self._queue) >= settings.max_in_flight:
                self._pause()
                return
            if budget.exhausted:
                self._pause()
                if self._budget_wait is None:
                    self._budget_wait = self._loop.create_task(self._await_budget())
                return
            budget.reserve(size_bytes)
            framer.open(size_bytes)

    async def _await_budget(self) -> None:
        await self._door.streams.budget.wait()
        self._budget_wait = None
        self._take_frames()

    def _pause(self) -> None:
        if self._reading and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        if not self._reading and not self._transport.is_closing():
            self._reading = True
            self._last_byte_s = self._loop.time()
            self._transport.resume_reading()

    # Admission: one request after another

    def _wake(self) -> None:
        if self._work is not None and not self._work.done():
            self._work.set_result(None)

    async def _admit_all(self) -> None:
        while True:
            while self._queue and self._writable and len(self._readers) < self._door.settings.max_reads_in_flight:
                await self._admit(self._queue.popleft())
            self._work = self._loop.create_future()
            await self._work

    async def _admit(self, frame: memoryview) -> None:
        size_bytes, slot = len(frame), _Slot()
        context: Context | None = None
        self._slots.append(slot)
        try:
            prefix = codec.read_prefix(frame)
            api = self._door.apis.get(prefix.api_key)
            if api is None or not api.serves(prefix.version):
                if api is not API_VERSIONS:
                    raise MalformedRequest(f"version {prefix.version} of API {prefix.api_key} is not served")
                first = codec.wire(api.key, 0)
                self._answer(slot, codec.write_response(first, prefix.correlation_id, unsupported_version(self._door)))
                return
            wire = codec.wire(api.key, prefix.version)
            client_id, request = codec.read_request(wire, frame)
            del frame
            context = Context(self._door, prefix.version, client_id, self._host, self._close)
            result = api.handle(context, request)
            if api.ordered:
                reply = await result
                if reply is None or not isinstance(reply, Awaitable):
                    self._answer(
                        slot, None if reply is None else codec.write_response(wire, prefix.correlation_id, reply)
                    )
                    return
                result = reply
            task = self._loop.create_task(_written(cast(Awaitable[Reply], result), wire, prefix))
            self._tasks.add(task)
            if api.cancellable:
                self._readers.add(task)
            task.add_done_callback(partial(self._answered, slot))
            context.holds.append(task)
        except MalformedRequest as error:
            self._close(f"not a request that can be read: {error}")
        finally:
            self._release_after([] if context is None else context.holds, size_bytes)

    def _admission_ended(self, admission: asyncio.Task[None]) -> None:
        error = None if admission.cancelled() else admission.exception()
        if error is not None:
            self._failed(error)

    def _release_after(self, holds: list[asyncio.Future[Any]], size_bytes: int) -> None:
        """Gives the frame's memory back when nothing needs it any more."""
        left = len(holds)

        def ended(_: object) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._door.streams.budget.release(size_bytes)

        for future in holds:
            future.add_done_callback(ended)
        if not holds:
            self._door.streams.budget.release(size_bytes)

    # Answers

    def _answered(self, slot: _Slot, task: asyncio.Task[list[Buffer] | None]) -> None:
        self._tasks.discard(task)
        self._readers.discard(task)
        self._wake()
        if task.cancelled():
            slot.abandoned = True
            self._answer(slot, None)
            return
        error = task.exception()
        if error is not None:
            self._failed(error)
        else:
            self._answer(slot, task.result())

    def _answer(self, slot: _Slot, answer: list[Buffer] | None) -> None:
        """Writes every answer that no earlier request stands before."""
        slot.answer, slot.done = answer, True
        slots, transport = self._slots, self._transport
        while slots and slots[0].done:
            first = slots.popleft()
            if first.abandoned:
                transport.close()
            elif first.answer is not None and not transport.is_closing():
                transport.writelines(first.answer)
        if not self._reading:
            self._take_frames()
            self._close_if_finished()

    def _failed(self, error: BaseException) -> None:
        """A request that cannot be answered: the client finds its connection closed and asks again."""
        if isinstance(error, LakestreamError):
            self._close(f"a request could not be served: {error}")
        else:
            log.error("a request of %s failed", self._client, exc_info=error)
            self._close("an internal error")

    def _close_if_finished(self) -> None:
        if self._ending and not self._slots and not self._queue:
            self._transport.close()

    def _close(self, reason: str) -> None:
        """Closes this connection only. One line says why."""
        if not self._lost and not self._transport.is_closing():
            log.warning("closing the connection from %s: %s", self._client, reason)
            self._transport.close()


async def _written(reply: Awaitable[Reply], wire: Wire, prefix: Prefix) -> list[Buffer] | None:
    fields = await reply
    return None if fields is None else codec.write_response(wire, prefix.correlation_id, fields)
