"""Several pointers moved at once: all or none, whatever stops when and whoever comes between."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import pytest

from lakestream.errors import Conflict, Unavailable
from lakestream.metadata.names.moves import intent_address
from lakestream.metadata.names.pointers import Move, Pointer, PointerRow, Pointers
from lakestream.metadata.store import Address, Entry, Outcome, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import system

TABLES = [UUID(int=number) for number in (1, 2, 3)]
MOVE, OTHER = UUID(int=100), UUID(int=101)
MOST_CALLS = 40


class Steps(MemoryStore):
    """Does something instead of, or before, the n-th call, reads and writes alike."""

    def __init__(self, at: int, then: Callable[[], Awaitable[None]], *, applies: bool = False) -> None:
        super().__init__(system())
        self.calls, self.at, self.then, self.applies = 0, at, then, applies
        self.counting = False

    async def get(self, addresses: Sequence[Address]) -> list[Entry | None]:
        await self._step()
        return await super().get(addresses)

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        if self.counting and self.applies and self.calls + 1 == self.at:
            await super().transact(transactions)
        await self._step()
        return await super().transact(transactions)

    async def _step(self) -> None:
        if not self.counting:
            return
        self.calls += 1
        if self.calls == self.at:
            self.counting = False
            try:
                await self.then()
            finally:
                self.counting = True


async def stop() -> None:
    raise Unavailable("no answer")


async def tables_of(store: MemoryStore) -> list[PointerRow]:
    return [await Pointers(store).add(table, Pointer("old", bound=number == 0)) for number, table in enumerate(TABLES)]


def moves_of(rows: Sequence[PointerRow], to: str = "new") -> list[Move]:
    return [Move(table, row.version, to) for table, row in zip(TABLES, rows, strict=True)]


async def locations(store: MemoryStore) -> set[str]:
    found = [await Pointers(store).get(table) for table in TABLES]
    assert found[0] is not None
    assert found[0].pointer.bound
    return {row.pointer.metadata_location for row in found if row is not None}


async def leftovers(store: MemoryStore) -> list[object]:
    intents = await store.get([intent_address(table) for table in TABLES])
    return [*(intent for intent in intents if intent), *await store.range("moves", "", "z")]


async def test_all_move_and_nothing_is_left() -> None:
    store = MemoryStore(system())
    moves = moves_of(await tables_of(store))
    await Pointers(store).swing_all(MOVE, moves, 0)
    assert await locations(store) == {"new"}
    assert await leftovers(store) == []
    with pytest.raises(Conflict):
        await Pointers(store).swing_all(OTHER, moves, 0)
    assert await locations(store) == {"new"}
    assert await leftovers(store) == []


@pytest.mark.parametrize("applies", [False, True])
async def test_a_crash_at_any_call_leaves_all_or_none(applies: bool) -> None:
    async def test(at: int) -> tuple[set[str], bool]:
        store = Steps(at, stop, applies=applies)
        rows = await tables_of(store)
        store.counting = True
        crashed = False
        try:
            await Pointers(store).swing_all(MOVE, moves_of(rows), 0)
        except Unavailable:
            crashed = True
        ended = store.calls
        store.counting = False
        seen = await locations(store)
        assert len(seen) == 1, f"half is visible after a crash at call {at}"
        assert crashed or seen == {"new"}
        # Whoever writes next ends what is left, and is not kept from it.
        present = [await Pointers(store).get(table) for table in TABLES]
        for table, row in zip(TABLES, present, strict=True):
            assert row is not None
            await Pointers(store).swing(table, row.version, Pointer("later", row.pointer.bound))
        assert await locations(store) == {"later"}
        await Pointers(store).swing_all(
            OTHER, moves_of([r for r in [await Pointers(store).get(t) for t in TABLES] if r]), 10**9
        )
        assert await locations(store) == {"new"}
        assert await leftovers(store) == []
        return seen, ended < at

    outcomes = []
    for at in range(1, MOST_CALLS):
        seen, over = await test(at)
        outcomes.append(seen)
        if over:
            break
    else:
        pytest.fail("the move has more steps than were tried")
    assert {"old"} in outcomes
    assert {"new"} in outcomes


@pytest.mark.parametrize("rival", ["swing", "move", "drop", "read"])
async def test_a_rival_between_any_two_calls_and_the_move_are_one_after_the_other(rival: str) -> None:
    async def test(at: int) -> bool:
        seen: list[set[str]] = []
        won: list[bool] = []

        async def act() -> None:
            pointers = Pointers(store)
            if rival == "read":
                seen.append(await locations(store))
                return
            if rival == "drop":
                seen.append(await locations(store))
                await pointers.drop(TABLES[2])
                return
            rows = [await pointers.get(table) for table in TABLES]
            if rival == "swing":
                row = rows[1]
                assert row is not None
                await pointers.swing(TABLES[1], row.version, Pointer("rival"))
            else:
                backwards = [Move(t, row.version, "rival") for t, row in zip(TABLES, rows, strict=True) if row][::-1]
                await pointers.swing_all(OTHER, backwards, 0)

        store = Steps(at, act)
        rows = await tables_of(store)
        store.counting = True
        try:
            await Pointers(store).swing_all(MOVE, moves_of(rows), 0)
            won.append(True)
        except Conflict:
            won.append(False)
        over = store.calls < at
        store.counting = False
        found = [await Pointers(store).get(table) for table in TABLES]
        after = [None if row is None else row.pointer.metadata_location for row in found]
        assert await leftovers(store) == []
        if over or rival == "read":
            assert after == ["new"] * 3
            assert seen == [] or seen[0] in ({"old"}, {"new"})
        elif rival == "swing":
            assert after == (["new", "rival", "new"] if won[0] else ["old", "rival", "old"])
        elif rival == "move":
            assert after == ["rival"] * 3
        else:
            # A commit to a table that was dropped before it cannot be.
            assert won[0] == (seen == [{"new"}])
            assert after == (["new", "new", None] if won[0] else ["old", "old", None])
        return over

    for at in range(1, MOST_CALLS):
        if await test(at):
            return
    pytest.fail("the move has more steps than were tried")


async def test_a_late_intent_of_an_abandoned_move_never_counts() -> None:
    """Its maker slept between two intents; meanwhile the move was given up and forgotten."""
    calls = 0

    async def give_up() -> None:
        row = await Pointers(store).get(TABLES[0])
        assert row is not None
        await Pointers(store).swing(TABLES[0], row.version, Pointer("rival", bound=True))

    for at in range(1, MOST_CALLS):
        store = Steps(at, give_up)
        rows = await tables_of(store)
        store.counting = True
        try:
            await Pointers(store).swing_all(MOVE, moves_of(rows), 0)
        except Conflict:
            calls += 1
            store.counting = False
            found = [await Pointers(store).get(table) for table in TABLES]
            assert [row and row.pointer.metadata_location for row in found] == ["rival", "old", "old"]
    assert calls > 2
