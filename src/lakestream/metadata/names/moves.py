"""Moving the pointers of several tables at once: all of them or none, whoever crashes when.

A transaction of the store is atomic within one shard, and every table's pointer has a shard of its own. So a *move* has
a row of its own that says what became of it, and that row is its one point of decision:

1. The row is made: open.
2. Each table gets an intent beside its pointer, if the pointer is still the one that was built on. A pointer with
   an intent cannot be swung or deleted by anybody.
3. The row is set from open to done, if it is still open. From here on every reader sees all the new pointers.
4. Each pointer is swung and its intent taken away; then the row is deleted.

Readers who find an intent look at the row: open means that the pointer still holds, done that they finish step 4 and
look again. Writers do not wait for an open move: they give it up, by setting its row from open to abandoned, and take
its intents away. So whoever stops at any step leaves nothing that the next comer cannot end. A row is deleted only
when none of its tables has its intent; an intent without a row is a late one of an abandoned move.
"""

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple
from uuid import UUID

import msgspec

from lakestream.errors import Conflict, Unavailable
from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Refused, Store, Transaction

_log = logging.getLogger(__name__)

POINTER: Final = "pointer"
INTENT: Final = "intent"
_SHARD: Final = "moves"
_ROW: Final = "move/"
_FORGOTTEN_MS: Final = 600_000
"""An open move of this age has lost the process that made it."""


class Pointer(msgspec.Struct, frozen=True, array_like=True):
    """`bound`: the table of a living topic."""

    metadata_location: str
    bound: bool = False


class Intent(msgspec.Struct, frozen=True, array_like=True):
    move_id: UUID
    metadata_location: str


class MoveDecision(msgspec.Struct, frozen=True, array_like=True):
    tables: list[UUID]
    started_ms: int
    state: Literal["open", "done", "abandoned"]


class Move(NamedTuple):
    """One table's part: from the pointer that has this version to this metadata."""

    table_id: UUID
    version: int
    metadata_location: str


@lru_cache(maxsize=4096)
def pointer_address(table_id: UUID) -> Address:
    """Where a table's pointer is: what a reader watches to learn of a new view."""
    return Address(f"table/{table_id.hex}", POINTER)


@lru_cache(maxsize=4096)
def intent_address(table_id: UUID) -> Address:
    return Address(f"table/{table_id.hex}", INTENT)


def _row_address(move_id: UUID) -> Address:
    return Address(_SHARD, _ROW + move_id.hex)


class Moves:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def commit(self, move_id: UUID, moves: Sequence[Move], now_ms: int) -> None:
        """Raises `Conflict` if any table is another by now or somebody gave the move up (nothing has changed, and never
        will), `Unavailable` if the outcome is unknown."""
        await self._end_forgotten(now_ms)
        tables = [move.table_id for move in moves]
        version = await self._put_row(move_id, MoveDecision(tables, now_ms, "open"), ABSENT)
        if version is None:
            raise Conflict(f"move {move_id} was begun already: try again")
        try:
            for move in moves:
                await self._intend(move_id, move)
            if await self._put_row(move_id, MoveDecision(tables, now_ms, "done"), version) is None:
                raise Conflict("another commit to one of the tables came first: load them again")
        except Conflict:
            await self._settle_row(move_id)
            raise
        try:
            await self._settle_row(move_id)
        except Unavailable as error:
            _log.warning("a commit to %d tables is done and is finished by whoever reads them: %s", len(tables), error)

    async def is_open(self, table_id: UUID, intent: Entry) -> bool:
        """Whether the pointer beside this intent still holds. False: settle it and look again."""
        row = await self._row(_decode(intent, table_id).move_id)
        return row is not None and row[0].state == "open"

    async def settle(self, table_id: UUID, intent: Entry) -> None:
        """Ends the move of this intent: a done one is finished, an open one given up."""
        move_id = _decode(intent, table_id).move_id
        if not await self._settle_row(move_id):
            await self._end(table_id, move_id, done=False)

    async def _settle_row(self, move_id: UUID) -> bool:
        """False: the move has no row."""
        while True:
            row = await self._row(move_id)
            if row is None:
                return False
            decision, version = row
            if decision.state != "open":
                break
            await self._put_row(move_id, MoveDecision(decision.tables, decision.started_ms, "abandoned"), version)
        for table_id in decision.tables:
            await self._end(table_id, move_id, done=decision.state == "done")
        address = _row_address(move_id)
        await self._store.transact([Transaction(_SHARD, {address.key: version}, {}, deletes=[address.key])])
        return True

    async def _end(self, table_id: UUID, move_id: UUID, *, done: bool) -> None:
        """Takes the intent of this move away from a table; swings its pointer if the move is done. Idempotent."""
        shard = pointer_address(table_id).shard
        while True:
            pointer, intent = await self._store.get([pointer_address(table_id), intent_address(table_id)])
            if intent is None:
                return
            wanted = _decode(intent, table_id)
            if wanted.move_id != move_id:
                return
            checks, puts = {INTENT: intent.version}, {}
            if done and pointer is not None:
                old = codec.decode(pointer.value, Pointer, pointer_address(table_id))
                checks[POINTER] = pointer.version
                puts[POINTER] = codec.encode(Pointer(wanted.metadata_location, old.bound), pointer_address(table_id))
            [outcome] = await self._store.transact([Transaction(shard, checks, puts, deletes=[INTENT])])
            if isinstance(outcome, Applied):
                return

    async def _intend(self, move_id: UUID, move: Move) -> None:
        address = intent_address(move.table_id)
        value = codec.encode(Intent(move_id, move.metadata_location), address)
        while True:
            [outcome] = await self._store.transact(
                [Transaction(address.shard, {POINTER: move.version, INTENT: ABSENT}, {INTENT: value})]
            )
            if isinstance(outcome, Applied):
                return
            other = outcome.current.get(INTENT)
            if POINTER in outcome.current or other is None:
                raise Conflict(f"table {move.table_id} was changed by somebody else: load it again")
            await self.settle(move.table_id, other)

    async def _end_forgotten(self, now_ms: int) -> None:
        for entry in await self._store.range(_SHARD, _ROW, _ROW[:-1] + "0"):
            decision = codec.decode(entry.value, MoveDecision, Address(_SHARD, entry.key))
            if decision.started_ms < now_ms - _FORGOTTEN_MS:
                await self._settle_row(UUID(entry.key.removeprefix(_ROW)))

    async def _put_row(self, move_id: UUID, decision: MoveDecision, version: int) -> int | None:
        """The new version. None: the row is no longer the one of this version."""
        address = _row_address(move_id)
        [outcome] = await self._store.transact(
            [Transaction(_SHARD, {address.key: version}, {address.key: codec.encode(decision, address)})]
        )
        return None if isinstance(outcome, Refused) else outcome.version

    async def _row(self, move_id: UUID) -> tuple[MoveDecision, int] | None:
        address = _row_address(move_id)
        [entry] = await self._store.get([address])
        return None if entry is None else (codec.decode(entry.value, MoveDecision, address), entry.version)


def _decode(intent: Entry, table_id: UUID) -> Intent:
    return codec.decode(intent.value, Intent, intent_address(table_id))
