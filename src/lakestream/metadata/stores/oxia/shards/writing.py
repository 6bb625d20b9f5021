"""How a shard is changed: finish what the present root carries, look, write the next root, apply what it carries.

A process changes a shard one after another and remembers the root that it wrote, so a transaction on a shard that
nobody else writes is one write of the root, answered at once, and one of the rows, behind it. Whoever writes the next
root, here or elsewhere, first makes sure that the rows are there.

A write of the root whose answer was lost is sent again: only one of the two can meet the version id that they expect,
and the mark in the root tells whose it was.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from lakestream.errors import LakestreamError, RequestError, Unavailable
from lakestream.metadata.stores.oxia.keys import root_key
from lakestream.metadata.stores.oxia.service import NO_VERSION, OxiaService, PutKey, Stamp
from lakestream.metadata.stores.oxia.shards.applying import apply_redo, sweep
from lakestream.metadata.stores.oxia.shards.root import (
    RECENT,
    Grave,
    Redo,
    Root,
    RootAt,
    encode_root,
    graves_of,
    is_over,
)
from lakestream.metadata.stores.oxia.shards.rows import Place, read_root
from lakestream.runtime import Runtime

ATTEMPTS: Final = 40
"""To be the next writer of a root."""
SENDS: Final = 3
PAUSE_S: Final = 0.05
REMEMBERED: Final = 100_000
MAX_ROOT_BYTES: Final = 2 << 20
"""Below the 4 MiB that gRPC takes by default."""


@dataclass(eq=False, slots=True)
class KnownRoot:
    """A root that was read or written here. If it is still there, so is all that is known beside it."""

    at: RootAt
    versions: dict[str, int] = field(default_factory=dict)
    """Of data rows, those that transactions check."""
    row_ids: dict[Place, int] = field(default_factory=dict)
    """Version ids of rows in Oxia, to begin with."""
    is_applied: bool = False
    applying: asyncio.Task[None] | None = None

    def applied(self) -> None:
        """The rows are there: the redo need not be kept."""
        self.is_applied = True
        self.at = self.at._replace(root=msgspec.structs.replace(self.at.root, redo=()))


@dataclass(eq=False, slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class NextRoot(msgspec.Struct, frozen=True):
    """A root to write. `known`: versions of data rows that will be certain once it is written."""

    rows: Mapping[Place, bytes]
    deletes: Sequence[str] = ()
    ranges: Sequence[tuple[str, str]] = ()
    known: Mapping[str, int] = {}


class Nothing(msgspec.Struct, frozen=True):
    """Nothing is to be written. It holds only if the root is still the one that was looked at."""

    is_certain: bool = False


Plan = Callable[[KnownRoot, int], Awaitable[NextRoot | Nothing]]
"""What to do, given a root whose rows are all there and the version that a change will have."""


async def finish(oxia: OxiaService, shard: str, known: KnownRoot) -> bool:
    """Applies what a root carries. Doing so again does no harm. False: it is too late for this root."""
    for attempt in range(1, SENDS):
        try:
            return await apply_redo(oxia, shard, known.at, known.row_ids)
        except Unavailable:
            known.row_ids = {}
            await asyncio.sleep(PAUSE_S * attempt)
    return await apply_redo(oxia, shard, known.at, known.row_ids)


async def find_own(oxia: OxiaService, shard: str, root: Root, lost: Unavailable) -> Stamp | None:
    """Whether the root that is there is the one whose answer was lost. None: that one can never be written now."""
    found = await read_root(oxia, shard)
    if found.root.recent and found.root.recent[-1] == root.recent[-1]:
        return Stamp(found.version_id, found.at_ms)
    if found.root.sequence - root.sequence >= len(found.root.recent):
        raise lost
    if root.recent[-1] in found.root.recent:
        # Written, and others have gone on, who have applied it.
        return Stamp(NO_VERSION, 0)
    return None


class Writer:
    """Belongs to one event loop. The runtime's chance makes the marks."""

    def __init__(self, oxia: OxiaService, runtime: Runtime) -> None:
        self._oxia = oxia
        self._random = runtime.random
        self._known: OrderedDict[str, KnownRoot] = OrderedDict()
        self._turns: dict[str, _Turn] = {}
        self._applying: set[asyncio.Task[None]] = set()

    async def change(self, shard: str, plan: Plan) -> int | None:
        """Does what `plan` says of the present root and returns the version, None if nothing was to be done."""
        turn = self._turns.setdefault(shard, _Turn())
        turn.waiting += 1
        try:
            async with turn.lock:
                return await self._change(shard, plan)
        except BaseException:
            self._known.pop(shard, None)
            raise
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._turns[shard]

    async def close(self) -> None:
        """Lets what is being applied come to its end: others would have to do it."""
        if self._applying:
            await asyncio.wait(self._applying)

    async def _change(self, shard: str, plan: Plan) -> int | None:
        for attempt in range(ATTEMPTS):
            known = await self._finished(shard)
            if known is not None:
                version = known.at.root.sequence + 1
                planned = await plan(known, version)
                if isinstance(planned, Nothing):
                    if planned.is_certain or (await read_root(self._oxia, shard)).version_id == known.at.version_id:
                        return None
                elif await self._write(shard, known, planned):
                    return version
            self._known.pop(shard, None)
            await asyncio.sleep(PAUSE_S * self._random.random() * min(attempt, 5))
        raise Unavailable(f"too many others write {shard} in Oxia at once; nothing was written")

    async def _finished(self, shard: str) -> KnownRoot | None:
        """The present root as far as is known, its rows applied and its old graves swept. None: it was another one."""
        known = self._known.get(shard)
        if known is not None and known.applying is not None:
            await asyncio.wait([known.applying])
            known.applying = None
        if known is None:
            known = KnownRoot(await read_root(self._oxia, shard))
            self._remember(shard, known)
        if not known.is_applied:
            if not await finish(self._oxia, shard, known):
                # Too late for its own root: the same redo under a new one.
                redo = known.at.root.redo
                if not await self.swing(shard, known, redo, graves_of(known.at)):
                    return None
                if not await finish(self._oxia, shard, known):
                    raise Unavailable(f"Oxia is too slow to finish what was begun in {shard}; nothing was written")
            known.applied()
        return known

    async def _write(self, shard: str, known: KnownRoot, change: NextRoot) -> bool:
        """False: somebody else wrote the root first."""
        over = [grave for grave in graves_of(known.at) if is_over(grave, known.at.at_ms)]
        if over:
            await sweep(self._oxia, shard, over)
        sequence = known.at.root.sequence + 1
        graves = [grave for grave in graves_of(known.at) if grave not in over]
        graves += [Grave(key, None, sequence, 0) for key in change.deletes]
        graves += [Grave(start, end, sequence, 0) for start, end in change.ranges if start < end]
        redo = [Redo(kind, key, sequence, value) for (kind, key), value in change.rows.items()]
        if not await self.swing(shard, known, redo, graves):
            return False
        if known.at.version_id == NO_VERSION:
            self._known.pop(shard, None)
            return True
        known.versions = dict(change.known)
        if redo or any(grave.sequence == sequence for grave in graves):
            known.is_applied = False
            known.applying = asyncio.get_running_loop().create_task(self._apply(shard, known))
            self._applying.add(known.applying)
            known.applying.add_done_callback(self._applying.discard)
        return True

    async def _apply(self, shard: str, known: KnownRoot) -> None:
        """Behind the answer. What fails here is finished by the next writer."""
        try:
            if await apply_redo(self._oxia, shard, known.at, known.row_ids):
                known.applied()
        except LakestreamError:
            known.row_ids = {}

    async def swing(self, shard: str, known: KnownRoot, redo: Sequence[Redo], graves: Sequence[Grave]) -> bool:
        """Writes the next root in place of the one known. False: another one is there. Raises `Unavailable` if nobody
        can tell."""
        last = known.at
        mark = self._random.getrandbits(64).to_bytes(8, "big")
        root = Root(last.root.sequence + 1, redo, graves, [*last.root.recent[1 - RECENT :], mark])
        value = encode_root(shard, root)
        if len(value) > MAX_ROOT_BYTES:
            raise _too_large(shard, value, graves)
        stamp = await self._send(shard, PutKey(root_key(shard), value, last.version_id), root)
        if stamp is None:
            return False
        known.at = RootAt(root, stamp.version_id, stamp.modified_ms)
        self._remember(shard, known)
        return True

    async def _send(self, shard: str, put: PutKey, root: Root) -> Stamp | None:
        lost: Unavailable | None = None
        for attempt in range(SENDS):
            try:
                if attempt:
                    await asyncio.sleep(PAUSE_S * attempt)
                [stamp] = await self._oxia.put(shard, [put])
                if stamp is not None or lost is None:
                    return stamp
                return await find_own(self._oxia, shard, root, lost)
            except Unavailable as error:
                lost = lost or error
        raise lost or Unavailable("Oxia did not answer")

    def _remember(self, shard: str, known: KnownRoot) -> None:
        self._known[shard] = known
        self._known.move_to_end(shard)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


def _too_large(shard: str, value: bytes, graves: Sequence[Grave]) -> LakestreamError:
    if any(grave.at_ms for grave in graves) and len(graves) > 1000:
        return Unavailable(
            f"{shard}: too many deletes within a minute and a half; nothing was written, try again later"
        )
    return RequestError(
        f"a change of {shard} is too large for Oxia: {len(value)} bytes, at most {MAX_ROOT_BYTES}; nothing was written"
    )
