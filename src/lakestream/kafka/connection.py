"""One client connection: frames in, answers out in the order of their requests.

A request is given memory as its bytes come (`receiving`). Once it is whole it needs a place in a budget:
produce requests share one, of which a connection has a quarter at most; all others, which are
small and soon done, have one of their own. While a budget is spent, too many requests wait or
the client does not read its answers, the socket is not read. Requests are admitted one by one, in
arrival order; what they wait for runs side by side. A lost connection ends what only reads; what
writes goes on without it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, cast

from lakestream.access import ANONYMOUS
from lakestream.errors import LakestreamError
from lakestream.kafka.answering import Answers, Slot
from lakestream.kafka.apis.api import Api, Context, Door, Reply, Taken
from lakestream.kafka.apis.p18_api_versions import API as API_VERSIONS
from lakestream.kafka.apis.p18_api_versions import unsupported_version
from lakestream.kafka.errors import MalformedRequest, refusals
from lakestream.kafka.receiving import SLOW_BYTES_PER_S, Arrival
from lakestream.kafka.wire import codec
from lakestream.kafka.wire.codec import Prefix
from lakestream.kafka.wire.framing import Framer
from lakestream.kafka.wire.writing import Fields
from lakestream.objects import Buffer
from lakestream.stream import MemoryBudget

log = logging.getLogger(__name__)

_PRODUCE: Final = b"\x00\x00"
"""How the frame of a produce request begins."""
_SHARE: Final = 4
"""One connection may hold a quarter of the budget, or one request."""


class Connection(asyncio.BufferedProtocol):
    def __init__(self, door: Door, connections: set["Connection"]) -> None:
        self._door = door
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._framer = Framer()
        self._arrival = Arrival(door.pools, self._pump, self._cut)
        self._answers = Answers(door.answer_budget)
        self._produced_bytes = 0
        self._slots: deque[Slot] = deque()
        self._outgoing: list[Buffer] = []
        self._readers: set[asyncio.Future[Reply]] = set()
        self._entering: asyncio.Task[Taken] | None = None
        self._host = self._client = "?"
        self._principal = ANONYMOUS
        self._budget_wait: asyncio.Task[None] | None = None
        self._reading = self._writable = True
        self._pumping = self._ending = self._hung_up = self._lost = False
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._last_byte_s = self._began_s = self._paused_s = self._loop.time()
        self._transport: asyncio.Transport

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._door.settings.write_high_water_bytes)
        peer = transport.get_extra_info("peername")
        if peer:
            self._host, self._client = peer[0], f"{peer[0]}:{peer[1]}"
        self._connections.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._framer.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._hung_up:
            return
        self._last_byte_s = self._loop.time()
        if not self._framer.mid_frame:
            self._began_s = self._last_byte_s
        self._framer.advance(nbytes)
        self._arrival.received_bytes = self._framer.filled_bytes
        self._pump()

    def eof_received(self) -> None:
        """The client is gone, or will be once it has read what it asked for: the transport closes."""

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._settle_answers()
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._door.shares.connection_lost(self._answers)
        self.closed.set_result(None)
        self._connections.discard(self)
        for waiting in (self._entering, self._budget_wait, *self._readers):
            if waiting is not None:
                waiting.cancel()
        self._slots.clear()
        self._framer.discard()
        self._arrival.end()
        self._answers.end()

    # What the server calls

    def finish(self) -> None:
        """Takes no further request; hangs up once those that were taken are answered."""
        self._ending = True
        self._pause()
        for reader in list(self._readers):
            reader.cancel()
        self._close_if_finished()

    def abort(self) -> None:
        self._transport.abort()

    def sweep(self, now_s: float) -> None:
        """Closes a client that stops in the middle of a request or trickles it, or neither asks nor reads for very
        long."""
        silent_ms = (now_s - self._last_byte_s) * 1000
        settings = self._door.settings
        self._settle_answers()
        if unread_bytes := self._answers.stuck_bytes(now_s):
            self._cut(f"it does not read {unread_bytes} bytes that it asked for, and others wait for their memory")
        elif self._reading and self._framer.mid_frame:
            took_ms = (now_s - self._began_s) * 1000
            if silent_ms > settings.frame_stall_ms:
                self._cut(f"no byte of a started request for {silent_ms:.0f} ms")
            elif took_ms > settings.frame_stall_ms + self._arrival.size_bytes / SLOW_BYTES_PER_S * 1000:
                self._cut(
                    f"{self._framer.filled_bytes} bytes of a request of {self._arrival.size_bytes} came in"
                    f" {took_ms:.0f} ms: that is too slow"
                )
        elif (not self._slots or not self._writable) and silent_ms > settings.idle_connection_ms:
            self._transport.abort()

    # Reading

    def _pump(self) -> None:
        """Reads frames and admits requests as long as they may be held."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while not (self._lost or self._ending or self._transport.is_closing()) and self._advance():
                pass
        finally:
            self._pumping = False

    def _advance(self) -> bool:
        """One frame further; False when there is something to wait for."""
        framer, settings = self._framer, self._door.settings
        if self._answers.is_muted(self._loop.time()):
            self._pause()
            return False
        frame = framer.whole()
        if frame is not None:
            return self._admit_when_there_is_room(frame)
        if framer.needs_room:
            if not self._arrival.grow():
                self._pause()
                return False
            framer.grow(self._arrival.room_bytes)
        size_bytes = framer.next_size()
        if size_bytes is None:
            self._resume()
            return False
        if size_bytes < 0 or size_bytes > settings.max_frame_bytes:
            self._close(f"a request of {size_bytes} bytes: at most {settings.max_frame_bytes} are taken")
            return False
        busy = len(self._slots) >= settings.max_in_flight or len(self._readers) >= settings.max_reads_in_flight
        if busy or not self._writable or self._entering is not None:
            self._pause()
            return False
        framer.open(size_bytes, self._arrival.begin(size_bytes))
        self._arrival.received_bytes = framer.filled_bytes
        return True

    def _admit_when_there_is_room(self, frame: memoryview) -> bool:
        produces, size_bytes = bytes(frame[:2]) == _PRODUCE, len(frame)
        budget = self._door.streams.budget if produces else self._door.control_budget
        if produces and self._produced_bytes and self._produced_bytes + size_bytes > budget.limit_bytes // _SHARE:
            self._pause()
            return False
        if budget.exhausted:
            self._pause()
            if self._budget_wait is None:
                self._budget_wait = self._loop.create_task(self._await_room(budget))
            return False
        budget.reserve(size_bytes)
        if produces:
            self._produced_bytes += size_bytes
        self._framer.take()
        self._arrival.end()
        self._began_s = self._loop.time()
        self._admit(frame, budget)
        return True

    async def _await_room(self, budget: MemoryBudget) -> None:
        await budget.wait()
        self._budget_wait = None
        self._pump()

    def _pause(self) -> None:
        if self._reading and not self._transport.is_closing():
            self._reading = False
            self._paused_s = self._loop.time()
            self._transport.pause_reading()

    def _resume(self) -> None:
        if not self._reading and not self._transport.is_closing():
            self._reading = True
            self._last_byte_s = self._loop.time()
            self._began_s += self._last_byte_s - max(self._paused_s, self._began_s)
            self._transport.resume_reading()

    # Admission: one request after another

    def _admit(self, frame: memoryview, budget: MemoryBudget) -> None:
        slot, holds = Slot(len(frame), self._began_s), list[asyncio.Future[Any]]()
        self._slots.append(slot)
        try:
            prefix = codec.read_prefix(frame)
            api = self._door.apis.get(prefix.api_key)
            if api is None or not api.serves(prefix.version):
                self._refuse(slot, api, prefix)
                return
            slot.wire, slot.correlation_id = codec.wire(api.key, prefix.version), prefix.correlation_id
            slot.api = api.name
            client_id, request = codec.read_request(slot.wire, frame)
            context = Context(
                self._door, self._principal, prefix.version, client_id, self._host, self._answers, self._close, holds
            )
            context.slot = slot
            self._start(slot, api, context, request)
        except MalformedRequest as error:
            self._close(f"not a request that can be read: {error}")
        finally:
            self._release_after(holds, len(frame), budget)

    def _start(self, slot: Slot, api: Api, context: Context, request: Any) -> None:
        taken: Taken | Coroutine[Any, Any, Taken]
        if api.admit is not None:
            taken = api.admit(context, request)
        elif api.handle is not None:
            taken = self._loop.create_task(api.handle(context, request))
            context.holds.append(taken)
            if api.cancellable:
                self._readers.add(taken)
        if isinstance(taken, Coroutine):
            self._entering = self._loop.create_task(taken)
            context.holds.append(self._entering)
            self._entering.add_done_callback(partial(self._entered, slot))
        else:
            self._follow(slot, taken)

    def _refuse(self, slot: Slot, api: Api | None, prefix: Prefix) -> None:
        """As Kafka does: a client that asks for versions in an unknown version is helped, others are closed."""
        if api is API_VERSIONS:
            slot.wire, slot.correlation_id = codec.wire(api.key, 0), prefix.correlation_id
            self._answer(slot, unsupported_version(self._door))
        else:
            self._close(f"version {prefix.version} of API {prefix.api_key} is not served")

    def _entered(self, slot: Slot, entering: "asyncio.Task[Taken]") -> None:
        self._entering = None
        if entering.cancelled():
            return
        error = entering.exception()
        if error is not None:
            self._failed(error)
        else:
            self._follow(slot, entering.result())
            self._pump()

    def _follow(self, slot: Slot, taken: Taken) -> None:
        if isinstance(taken, asyncio.Future):
            taken.add_done_callback(partial(self._answered, slot))
        else:
            self._answer(slot, taken)

    def _release_after(self, holds: list[asyncio.Future[Any]], size_bytes: int, budget: MemoryBudget) -> None:
        """Gives the frame's memory back when nothing needs it any more; a future may add others before it ends."""
        while holds and holds[-1].done():
            holds.pop()
        if holds:
            holds[-1].add_done_callback(lambda _: self._release_after(holds, size_bytes, budget))
            return
        budget.release(size_bytes)
        if budget is self._door.streams.budget:
            self._produced_bytes -= size_bytes
            if not self._reading:
                self._pump()

    # Answers

    def _answered(self, slot: Slot, future: "asyncio.Future[Reply]") -> None:
        self._readers.discard(future)
        slot.abandoned = future.cancelled()
        if not slot.abandoned and (error := future.exception()):
            self._failed(error)
        else:
            self._answer(slot, None if slot.abandoned else future.result())

    def _answer(self, slot: Slot, reply: Reply) -> None:
        """Lets every answer go that no earlier request stands before. Those that are ready together, as after
        a flush, are written together."""
        if self._lost or self._hung_up:
            return
        if slot.throttle_ms:
            reply = self._answers.throttled(reply, slot.throttle_ms, self._loop.time())
            self._loop.call_at(self._answers.muted_s, self._pump)
        if reply is not None and slot.wire is not None:
            try:
                slot.answer = codec.write_response(slot.wire, slot.correlation_id, reply)
            except Exception as unwritable:
                self._failed(unwritable)
                return
            self._measure(slot, reply, self._answers.add(slot.answer))
        slot.done = True
        slots = self._slots
        while slots and slots[0].done:
            first = slots.popleft()
            if first.abandoned:
                self._end()
            elif first.answer is not None:
                if not self._outgoing:
                    self._loop.call_soon(self._write)
                self._outgoing += first.answer
        if not self._reading:
            self._pump()
            self._close_if_finished()

    def _measure(self, slot: Slot, reply: Fields, answer_bytes: int) -> None:
        metrics = self._door.metrics
        metrics.answered(slot.api, self._loop.time() - slot.began_s, slot.size_bytes, answer_bytes)
        for code in refusals(reply):
            metrics.refused(slot.api, code)

    def _write(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if outgoing and not (self._hung_up or self._transport.is_closing()):
            self._transport.writelines(outgoing)
            self._answers.written(outgoing)
            self._settle_answers()

    def _settle_answers(self) -> None:
        self._answers.settle(self._transport.get_write_buffer_size(), self._loop.time())

    def _end(self) -> None:
        """Closes, after what is ready to be written."""
        self._write()
        if self._ending:
            self._hang_up()
        else:
            self._transport.close()

    def _hang_up(self) -> None:
        """Says that nothing more will come, and waits for the client to close, whose further requests are not looked
        at. Closing with bytes unread would make the system take back answers that the client has not read yet, and
        whoever sends without sequence numbers would send again what is in the log."""
        if not (self._hung_up or self._transport.is_closing()):
            self._hung_up = True
            self._framer.discard()
            self._arrival.end()
            self._transport.write_eof()
            self._transport.resume_reading()

    def _failed(self, error: BaseException) -> None:
        """A request that cannot be answered: the client finds its connection closed and asks again."""
        if isinstance(error, LakestreamError):
            self._close(f"a request could not be served: {error}")
        else:
            log.error("a request of %s failed", self._client, exc_info=error)
            self._close("an internal error")

    def _close_if_finished(self) -> None:
        if self._ending and not self._slots:
            self._end()

    def _cut(self, reason: str) -> None:
        """Closes at once: what was still to be written might keep the connection, and its memory, for ever."""
        if not self._lost:
            self._door.metrics.closed.inc()
            log.warning("cutting the connection from %s: %s", self._client, reason)
            self._transport.abort()

    def _close(self, reason: str) -> None:
        """Closes this connection only. One line says why."""
        if not self._lost and not self._transport.is_closing():
            self._door.metrics.closed.inc()
            log.warning("closing the connection from %s: %s", self._client, reason)
            self._end()
