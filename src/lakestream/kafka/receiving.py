"""Memory for requests that are still arriving, given as their bytes come.

What a request says its size is costs nothing. Up to `SMALL_BYTES` it lands in its connection's own memory; beyond that
it asks a pool for room, a few times what has arrived. Requests of more than `LARGE_BYTES` have a pool of their own, so
that they hold up only each other. Nobody waits for ever:

- If all who hold room wait for more, the first of them gets what it needs beyond the limit, one at a time.
- While anybody waits, whoever has room and brings less than `SLOW_BYTES_PER_S` is cut off within two looks.
- Connections that have brought such requests before and those that have not get room in turns, so that strangers,
  however many, do not keep known clients out.
"""

from collections.abc import Callable
from typing import Final

SMALL_BYTES: Final = 64 * 1024
LARGE_BYTES: Final = 4 * 1024 * 1024
SLOW_BYTES_PER_S: Final = 64 * 1024
_FIRST_BYTES: Final = 256 * 1024
_GROWTH: Final = 4


class Arrival:
    """The request that one connection is sending. `roomy` is called when room that was asked for is there, `cut` when
    somebody else needs it more. `received_bytes` is the connection's to keep up."""

    __slots__ = (
        "_known_bytes",
        "_pool",
        "_pools",
        "cut",
        "last_look_bytes",
        "received_bytes",
        "room_bytes",
        "roomy",
        "size_bytes",
    )

    def __init__(self, pools: "Pools", roomy: Callable[[], None], cut: Callable[[str], None]) -> None:
        self._pools = pools
        self._pool: Pool | None = None
        self._known_bytes = 0
        self.roomy = roomy
        self.cut = cut
        self.size_bytes = self.room_bytes = self.received_bytes = 0
        self.last_look_bytes: int | None = None

    @property
    def is_known(self) -> bool:
        return self._known_bytes > 0

    @property
    def is_whole(self) -> bool:
        return self.received_bytes >= self.size_bytes

    def begin(self, size_bytes: int) -> int:
        """The room for the first bytes of a request: as much as the connection has brought whole before, if that is
        free, so that a steady producer's requests are never copied."""
        self.size_bytes, self.received_bytes, self.last_look_bytes = size_bytes, 0, None
        self.room_bytes = min(size_bytes, SMALL_BYTES)
        if size_bytes > SMALL_BYTES:
            self._pool = self._pools.large if size_bytes > LARGE_BYTES else self._pools.medium
            wanted_bytes = min(size_bytes, self._known_bytes)
            if wanted_bytes > SMALL_BYTES and self._pool.take(self, wanted_bytes):
                self.room_bytes = wanted_bytes
        return self.room_bytes

    def grow(self) -> bool:
        """More room, or False: then `roomy` is called when it can be asked for again."""
        assert self._pool is not None
        wanted_bytes = min(self.size_bytes, max(_FIRST_BYTES, self.room_bytes * _GROWTH))
        if not self._pool.take(self, wanted_bytes, wait=True):
            return False
        self.room_bytes, self.last_look_bytes = wanted_bytes, None
        return True

    def end(self) -> None:
        """The request is taken, or given up: its room is free."""
        if self._pool is not None:
            if self.is_whole:
                self._known_bytes = max(self._known_bytes, min(self.size_bytes, LARGE_BYTES))
            pool, self._pool = self._pool, None
            pool.leave(self)
        self.size_bytes = self.received_bytes = 0


class Pool:
    """Invariant: what is held within the limit is at most the limit; one arrival may hold room beyond it."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held: dict[Arrival, int] = {}
        self._beyond: Arrival | None = None
        self._waiting: dict[bool, dict[Arrival, int]] = {True: {}, False: {}}
        """By whether the connection is known, in the order in which they came: what each wants to hold in all."""
        self._granted: set[Arrival] = set()
        """Room was set apart for them; they have not come for it yet."""
        self._known_next = True
        self.used_bytes = 0

    def take(self, arrival: Arrival, room_bytes: int, *, wait: bool = False) -> bool:
        """Whether the arrival may hold so much in all."""
        if arrival in self._granted:
            self._granted.discard(arrival)
            return True
        if arrival is self._beyond:
            return True
        queue = self._waiting[arrival.is_known]
        if arrival in queue:
            return False
        if not any(self._waiting.values()) and self._fits(arrival, room_bytes):
            self._hold(arrival, room_bytes)
            return True
        if wait:
            queue[arrival] = room_bytes
            self._serve()
            if arrival in self._granted or arrival is self._beyond:
                self._granted.discard(arrival)
                return True
        return False

    def leave(self, arrival: Arrival) -> None:
        self._granted.discard(arrival)
        for queue in self._waiting.values():
            queue.pop(arrival, None)
        self.used_bytes -= self._held.pop(arrival, 0)
        if self._beyond is arrival:
            self._beyond = None
        self._serve()

    def look(self, elapsed_s: float) -> None:
        """To be called every `elapsed_s`."""
        pressed = any(self._waiting.values())
        for arrival in [*self._held, *([] if self._beyond is None else [self._beyond])]:
            if arrival.is_whole or self._waits(arrival):
                arrival.last_look_bytes = None
                continue
            before, arrival.last_look_bytes = arrival.last_look_bytes, arrival.received_bytes
            if pressed and before is not None and arrival.received_bytes - before < SLOW_BYTES_PER_S * elapsed_s:
                arrival.cut(
                    f"{arrival.received_bytes - before} bytes of a request of {arrival.size_bytes} came in"
                    f" {elapsed_s:g} s, and others wait for the memory it holds"
                )

    def _waits(self, arrival: Arrival) -> bool:
        return any(arrival in queue for queue in self._waiting.values())

    def _fits(self, arrival: Arrival, room_bytes: int) -> bool:
        return self.used_bytes + room_bytes - self._held.get(arrival, 0) <= self._limit_bytes

    def _hold(self, arrival: Arrival, room_bytes: int) -> None:
        self.used_bytes += room_bytes - self._held.get(arrival, 0)
        self._held[arrival] = room_bytes

    def _serve(self) -> None:
        """Gives room to those who wait, as far as it goes."""
        while any(self._waiting.values()):
            known = self._known_next if self._waiting[self._known_next] else not self._known_next
            queue = self._waiting[known]
            arrival, room_bytes = next(iter(queue.items()))
            if self._fits(arrival, room_bytes):
                self._hold(arrival, room_bytes)
            elif self._beyond is None and all(map(self._waits, self._held)):
                self.used_bytes -= self._held.pop(arrival, 0)
                self._beyond = arrival
            else:
                return
            del queue[arrival]
            self._known_next = not known
            self._granted.add(arrival)
            arrival.roomy()


class Pools:
    """What all connections of a server share."""

    def __init__(self, limit_bytes: int) -> None:
        self.medium = Pool(limit_bytes)
        self.large = Pool(limit_bytes)

    def look(self, elapsed_s: float) -> None:
        self.medium.look(elapsed_s)
        self.large.look(elapsed_s)
