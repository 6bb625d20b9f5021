"""What every metadata store must do. One line per backend in BACKENDS."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from lakestream.errors import Unavailable
from lakestream.metadata.memory import MemoryStore
from lakestream.metadata.sqlite import open_sqlite
from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Lease, Outcome, Refused, Store, Transaction
from lakestream.runtime import system

Opener = Callable[[Path], AbstractAsyncContextManager[Store]]
Check = Callable[[Store], Awaitable[None]]


@asynccontextmanager
async def memory(folder: Path) -> AsyncIterator[Store]:
    yield MemoryStore(system())


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Store]:
    store = await open_sqlite(str(folder / "metadata.db"))
    try:
        yield store
    finally:
        await store.close()


BACKENDS: dict[str, Opener] = {
    "memory": memory,
    "sqlite": sqlite,
}


@pytest.fixture(params=BACKENDS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Check], None]:
    """Runs a check against a fresh store of the backend."""
    opener = BACKENDS[request.param]

    async def main(check: Check) -> None:
        async with opener(tmp_path) as store, asyncio.timeout(60):
            await check(store)

    return lambda check: asyncio.run(main(check))


def put(shard: str = "s", *, checks: dict[str, int] | None = None, **values: bytes) -> Transaction:
    return Transaction(shard, checks or {}, values)


async def apply(store: Store, transaction: Transaction) -> int:
    (outcome,) = await store.transact([transaction])
    assert isinstance(outcome, Applied)
    return outcome.version


async def refuse(store: Store, transaction: Transaction) -> dict[str, Entry | None]:
    (outcome,) = await store.transact([transaction])
    assert isinstance(outcome, Refused)
    return dict(outcome.current)


async def contents(store: Store, shard: str = "s") -> dict[str, bytes]:
    return {entry.key: entry.value for entry in await store.range(shard, "", "\U0010ffff")}


def test_get_answers_in_the_order_asked(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        assert await store.get([]) == []
        first = await apply(store, put(a=b"1", b=b""))
        second = await apply(store, put("t", a=b"2"))
        wanted = [Address("t", "a"), Address("s", "none"), Address("s", "b"), Address("s", "a"), Address("t", "a")]
        assert await store.get(wanted) == [
            Entry("a", b"2", second),
            None,
            Entry("b", b"", first),
            Entry("a", b"1", first),
            Entry("a", b"2", second),
        ]

    run(check)


def test_get_takes_many_addresses(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        version = await apply(store, Transaction("s", {}, {f"{n:04d}": str(n).encode() for n in range(700)}))
        wanted = [Address("s", f"{n:04d}") for n in range(900)]
        expected = [Entry(f"{n:04d}", str(n).encode(), version) if n < 700 else None for n in range(900)]
        assert await store.get(wanted) == expected
        assert len(await store.range("s", "", "~")) == 700

    run(check)


def test_range_is_ordered_and_its_end_exclusive(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        keys = ["x/2", "x/10", "x", "x/", "x0", "w", "é", "z", "𝄞", "x/1", "A"]
        await apply(store, Transaction("s", {}, {key: key.encode() for key in keys}))
        await apply(store, put("r", x=b"neighbour"))
        await apply(store, put("t", x=b"neighbour"))

        async def found(start: str, end: str, limit: int | None = None) -> list[str]:
            return [entry.key for entry in await store.range("s", start, end, limit=limit)]

        assert await found("", "\U0010ffff") == sorted(keys, key=str.encode)
        assert await found("x/", "x0") == ["x/", "x/1", "x/10", "x/2"]
        assert await found("x/1", "x/2") == ["x/1", "x/10"]
        assert await found("x/", "x0", 2) == ["x/", "x/1"]
        assert await found("x/", "x0", 0) == []
        assert await found("x0", "x/") == []
        assert await found("x", "x") == []
        assert await store.range("nothing here", "", "~") == []

    run(check)


def test_values_keep_every_byte(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        values = {"all": bytes(range(256)) * 40, "none": b"", "a,b:c": b"a,b:c", "'": b"';--"}
        await apply(store, Transaction("s,:'", {}, values))
        assert await contents(store, "s,:'") == values

    run(check)


def test_absent_check_creates_once(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        version = await apply(store, put(a=b"1", checks={"a": ABSENT}))
        assert version > ABSENT
        assert await refuse(store, put(a=b"2", checks={"a": ABSENT})) == {"a": Entry("a", b"1", version)}
        assert await contents(store) == {"a": b"1"}

    run(check)


def test_refusal_tells_only_the_failed_checks(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        version = await apply(store, put(a=b"1", b=b"1"))
        later = await apply(store, put(b=b"2"))
        transaction = put(z=b"never", checks={"a": version, "b": version, "gone": version, "none": ABSENT})
        assert await refuse(store, transaction) == {"b": Entry("b", b"2", later), "gone": None}
        assert await contents(store) == {"a": b"1", "b": b"2"}

    run(check)


def test_refused_transaction_changes_nothing(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        before = {"a": b"1", "b": b"2", "c": b"3"}
        await apply(store, Transaction("s", {}, before))
        await refuse(store, Transaction("s", {"none": 7}, {"a": b"x", "d": b"x"}, ["b"], [("", "~")]))
        assert await contents(store) == before

    run(check)


def test_checks_are_of_the_own_shard(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        version = await apply(store, put("t", a=b"1"))
        assert await refuse(store, put("s", a=b"1", checks={"a": version})) == {"a": None}

    run(check)


def test_many_transactions_have_their_own_outcomes(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        version = await apply(store, put("s1", a=b"0"))
        outcomes = await store.transact(
            [
                put("s1", a=b"1", checks={"a": version}),
                put("s2", a=b"1", checks={"a": version}),
                put("s1", a=b"2", checks={"a": version}),
                put("s3", a=b"1", checks={"a": ABSENT}),
                Transaction("s3", {}, {"b": b"1"}, ["a"]),
                put("s3", c=b"1", checks={"a": ABSENT}),
            ]
        )
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds == [Applied, Refused, Refused, Applied, Applied, Applied]
        first, absent, stale = outcomes[:3]
        assert isinstance(first, Applied)
        assert absent == Refused({"a": None})
        assert stale == Refused({"a": Entry("a", b"1", first.version)})
        assert await contents(store, "s1") == {"a": b"1"}
        assert await contents(store, "s2") == {}
        assert await contents(store, "s3") == {"b": b"1", "c": b"1"}
        assert await store.transact([]) == []

    run(check)


def test_deletes_go_first_then_puts(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        await apply(store, put(a=b"1", b=b"1", c=b"1"))
        await apply(store, Transaction("s", {}, {"a": b"2", "b": b"2"}, ["a", "none"], [("b", "d")]))
        assert await contents(store) == {"a": b"2", "b": b"2"}

    run(check)


def test_range_delete_spares_the_neighbours(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        keys = [f"x/{offset:016x}" for offset in range(5)]
        for shard in ("r", "s", "t"):
            await apply(store, Transaction(shard, {}, {"head": b"h", **dict.fromkeys(keys, b"e"), "x0": b"n"}))
        await apply(store, Transaction("s", {}, {}, delete_ranges=[(keys[1], keys[3])]))
        assert list(await contents(store)) == ["head", keys[0], keys[3], keys[4], "x0"]
        await apply(store, Transaction("s", {}, {}, delete_ranges=[("x/", "x0")]))
        assert list(await contents(store)) == ["head", "x0"]
        assert len(await contents(store, "r")) == len(await contents(store, "t")) == 7

    run(check)


def test_versions_grow_and_are_never_reused(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        versions = [await apply(store, put(a=b"1")), await apply(store, put("t", a=b"1"))]
        versions.append(await apply(store, Transaction("s", {}, {}, ["a"])))
        versions.append(await apply(store, Transaction("t", {}, {}, [], [("", "~")])))
        versions.append(await apply(store, put(a=b"1", checks={"a": ABSENT})))
        await refuse(store, put(a=b"1", checks={"a": versions[0]}))
        assert versions == sorted(set(versions))
        (entry,) = await store.get([Address("s", "a")])
        assert entry is not None
        assert entry.version == versions[-1]

    run(check)


def test_concurrent_increments_are_all_counted(run: Callable[[Check], None]) -> None:
    async def increment(store: Store, times: int) -> None:
        for _ in range(times):
            done = False
            while not done:
                (entry,) = await store.get([Address("s", "n")])
                count, version = (int(entry.value), entry.version) if entry else (0, ABSENT)
                (outcome,) = await store.transact([put(n=str(count + 1).encode(), checks={"n": version})])
                done = isinstance(outcome, Applied)

    async def check(store: Store) -> None:
        await asyncio.gather(*(increment(store, 10) for _ in range(8)))
        assert await contents(store) == {"n": b"80"}

    run(check)


def test_watch_returns_at_once_when_something_differs(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        version = await apply(store, put(a=b"1"))
        for seen in (ABSENT, version - 1, version + 1):
            assert await store.watch({Address("s", "a"): seen}, timeout_ms=60_000)
        assert await store.watch({Address("s", "a"): version, Address("s", "b"): 3}, timeout_ms=60_000)
        assert await store.watch({Address("s", "a"): ABSENT}, timeout_ms=0)
        assert not await store.watch({Address("s", "a"): version}, timeout_ms=0)

    run(check)


@pytest.mark.parametrize(
    "change",
    [
        put(a=b"2"),
        Transaction("s", {}, {}, ["a"]),
        Transaction("s", {}, {}, [], [("a", "b")]),
        Transaction("s", {}, {"a": b"2"}, ["a"], [("a", "b")]),
        put(new=b"1"),
    ],
)
def test_watch_wakes_on(run: Callable[[Check], None], change: Transaction) -> None:
    async def check(store: Store) -> None:
        version = await apply(store, put(a=b"1"))
        seen = {Address("s", "a"): version, Address("s", "new"): ABSENT, Address("other", "a"): ABSENT}
        waiting = [asyncio.create_task(store.watch(seen, timeout_ms=60_000)) for _ in range(3)]
        await asyncio.sleep(0.03)
        assert not any(task.done() for task in waiting)
        await apply(store, change)
        async with asyncio.timeout(5):
            assert await asyncio.gather(*waiting) == [True] * 3

    run(check)


def test_watch_sleeps_through_what_it_did_not_ask_for(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        version = await apply(store, put(a=b"1"))
        await apply(store, put(b=b"1"))
        waiting = asyncio.create_task(store.watch({Address("s", "a"): version}, timeout_ms=150))
        await asyncio.sleep(0.02)
        await apply(store, put("t", a=b"2"))
        await apply(store, Transaction("s", {}, {"c": b"2"}, ["b"], [("b", "z")]))
        await refuse(store, put(a=b"3", checks={"a": ABSENT}))
        assert not await waiting

    run(check)


def test_watch_times_out_after_its_time(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        assert not await store.watch({Address("s", "a"): ABSENT}, timeout_ms=60)
        assert loop.time() - started >= 0.055
        assert not await store.watch({}, timeout_ms=1)

    run(check)


def test_watch_can_be_cancelled(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        waiting = asyncio.create_task(store.watch({Address("s", "a"): ABSENT}, timeout_ms=60_000))
        await asyncio.sleep(0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await apply(store, put(a=b"1"))
        assert await store.watch({Address("s", "a"): ABSENT}, timeout_ms=60_000)

    run(check)


LEASE = Address("s", "lease")


def test_lease_is_held_by_one_and_renewed_with_its_token(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        mine = await store.acquire_lease(LEASE, "me", ttl_ms=60_000)
        assert (mine.holder, mine.remaining_ms) == ("me", 60_000)
        theirs = await store.acquire_lease(LEASE, "you", ttl_ms=90_000)
        assert (theirs.holder, theirs.token) == ("me", mine.token)
        assert 0 < theirs.remaining_ms <= 60_000
        renewed = await store.acquire_lease(LEASE, "me", ttl_ms=80_000)
        assert renewed == Lease("me", mine.token, 80_000)
        (entry,) = await store.get([LEASE])
        assert entry == Entry("lease", b"me", mine.token)

    run(check)


@pytest.mark.parametrize("next_holder", ["you", "me"])
def test_expired_lease_gets_a_new_token(run: Callable[[Check], None], next_holder: str) -> None:
    async def check(store: Store) -> None:
        mine = await store.acquire_lease(LEASE, "me", ttl_ms=5)
        await asyncio.sleep(0.03)
        assert await store.leases("s", "", "~") == []
        guarded = put(a=b"1", checks={"lease": mine.token})
        await apply(store, guarded)
        theirs = await store.acquire_lease(LEASE, next_holder, ttl_ms=60_000)
        assert theirs.holder == next_holder
        assert theirs.token > mine.token
        assert await refuse(store, guarded) == {"lease": Entry("lease", next_holder.encode(), theirs.token)}

    run(check)


def test_foreign_release_is_ignored(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        mine = await store.acquire_lease(LEASE, "me", ttl_ms=5)
        await asyncio.sleep(0.03)
        theirs = await store.acquire_lease(LEASE, "you", ttl_ms=60_000)
        await store.release_lease(LEASE, mine.token)
        await store.release_lease(Address("s", "none"), theirs.token)
        assert (await store.acquire_lease(LEASE, "me", ttl_ms=60_000)).token == theirs.token

    run(check)


def test_released_lease_is_free_and_its_token_dead(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        mine = await store.acquire_lease(LEASE, "me", ttl_ms=60_000)
        await store.release_lease(LEASE, mine.token)
        assert await store.leases("s", "", "~") == []
        assert await refuse(store, put(a=b"1", checks={"lease": mine.token})) == {"lease": None}
        theirs = await store.acquire_lease(LEASE, "you", ttl_ms=60_000)
        assert theirs.holder == "you"
        assert theirs.token > mine.token

    run(check)


def test_lease_whose_row_was_replaced_is_free(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        for change in (put(lease=b"x"), Transaction("s", {}, {}, ["lease"])):
            mine = await store.acquire_lease(LEASE, "me", ttl_ms=60_000)
            await apply(store, change)
            assert await store.leases("s", "", "~") == []
            theirs = await store.acquire_lease(LEASE, "you", ttl_ms=60_000)
            assert theirs.holder == "you"
            assert theirs.token > mine.token
            await store.release_lease(LEASE, theirs.token)

    run(check)


def test_leases_lists_a_range_in_order(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        granted = {}
        for key in ("b/2", "b/1", "a", "b0", "c"):
            granted[key] = await store.acquire_lease(Address("s", key), f"holder {key}", ttl_ms=60_000)
        await store.acquire_lease(Address("t", "b/3"), "elsewhere", ttl_ms=60_000)
        await store.acquire_lease(Address("s", "b/0"), "short", ttl_ms=1)
        await apply(store, put(**{"b/9": b"a plain row"}))
        await asyncio.sleep(0.02)
        listed = await store.leases("s", "b/", "b0")
        assert [(key, lease.holder, lease.token) for key, lease in listed] == [
            (key, f"holder {key}", granted[key].token) for key in ("b/1", "b/2")
        ]
        assert all(0 < lease.remaining_ms <= 60_000 for _, lease in listed)

    run(check)


def test_only_a_grant_wakes_watchers_of_a_lease(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        mine = await store.acquire_lease(LEASE, "me", ttl_ms=60_000)
        waiting = asyncio.create_task(store.watch({LEASE: mine.token}, timeout_ms=60_000))
        await asyncio.sleep(0.02)
        await store.acquire_lease(LEASE, "me", ttl_ms=60_000)
        await store.acquire_lease(LEASE, "you", ttl_ms=60_000)
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await store.release_lease(LEASE, mine.token)
        async with asyncio.timeout(5):
            assert await waiting

    run(check)


def test_one_of_many_rivals_gets_the_lease(run: Callable[[Check], None]) -> None:
    async def check(store: Store) -> None:
        rivals = [f"rival {n}" for n in range(20)]
        leases = await asyncio.gather(*(store.acquire_lease(LEASE, rival, ttl_ms=60_000) for rival in rivals))
        assert len({(lease.holder, lease.token) for lease in leases}) == 1

    run(check)


SHARDS = st.sampled_from(["s", "t"])
KEYS = st.sampled_from(["a", "b", "b/", "b/1", "b0", "c"])
VALUES = st.binary(max_size=4)


class AgainstModel(RuleBasedStateMachine):
    """The store must do what a dictionary would."""

    opener: Opener

    versions = Bundle("versions")

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory()
        self._context = type(self).opener(Path(self._folder.name))
        self._store = self._run(self._context.__aenter__())
        self._model: dict[str, dict[str, Entry]] = {"s": {}, "t": {}}
        self._last_version = ABSENT

    def teardown(self) -> None:
        self._run(self._context.__aexit__(None, None, None))
        self._runner.close()
        self._folder.cleanup()

    def _run(self, work: Any) -> Any:
        return self._runner.run(work)

    @initialize(target=versions)
    def absent(self) -> int:
        return ABSENT

    @rule(
        target=versions,
        steps=st.lists(
            st.tuples(
                SHARDS,
                st.dictionaries(KEYS, st.none(), max_size=2),
                st.dictionaries(KEYS, VALUES, max_size=3),
                st.lists(KEYS, max_size=2),
                st.lists(st.tuples(KEYS, KEYS), max_size=2),
                st.booleans(),
            ),
            min_size=1,
            max_size=4,
        ),
        guess=versions,
    )
    def transact(self, steps: list[Any], guess: int) -> int:
        transactions = []
        for shard, checked, puts, deletes, ranges, honest in steps:
            present = self._model[shard]
            checks = {key: present[key].version if honest and key in present else guess for key in checked}
            transactions.append(Transaction(shard, checks, puts, deletes, ranges))
        outcomes = self._run(self._store.transact(transactions))
        for transaction, outcome in zip(transactions, outcomes, strict=True):
            self._follow(transaction, outcome)
        return self._last_version

    def _follow(self, transaction: Transaction, outcome: Outcome) -> None:
        shard = self._model[transaction.shard]
        failed = {
            key: shard.get(key)
            for key, version in transaction.checks.items()
            if (shard[key].version if key in shard else ABSENT) != version
        }
        if failed:
            assert outcome == Refused(failed)
            return
        assert isinstance(outcome, Applied)
        assert outcome.version > self._last_version
        self._last_version = outcome.version
        for key in list(shard):
            if key in transaction.deletes or any(start <= key < end for start, end in transaction.delete_ranges):
                del shard[key]
        for key, value in transaction.puts.items():
            shard[key] = Entry(key, value, outcome.version)

    @rule(shard=SHARDS, start=KEYS, end=KEYS, limit=st.none() | st.integers(0, 4))
    def look(self, shard: str, start: str, end: str, limit: int | None) -> None:
        expected = [self._model[shard][key] for key in sorted(self._model[shard]) if start <= key < end][:limit]
        assert self._run(self._store.range(shard, start, end, limit=limit)) == expected

    @rule(addresses=st.lists(st.builds(Address, SHARDS, KEYS), max_size=6))
    def get(self, addresses: list[Address]) -> None:
        assert self._run(self._store.get(addresses)) == [self._model[a.shard].get(a.key) for a in addresses]

    @rule(addresses=st.lists(st.builds(Address, SHARDS, KEYS), max_size=3), guess=versions, honest=st.booleans())
    def watch(self, addresses: list[Address], guess: int, honest: bool) -> None:
        present = {a: e.version if (e := self._model[a.shard].get(a.key)) else ABSENT for a in addresses}
        seen = present if honest else dict.fromkeys(addresses, guess)
        assert self._run(self._store.watch(seen, timeout_ms=0)) == (seen != present)


@pytest.mark.parametrize("backend", BACKENDS)
def test_store_behaves_like_a_dictionary(backend: str) -> None:
    machine = type("Machine", (AgainstModel,), {"opener": staticmethod(BACKENDS[backend])})
    examples = settings(max_examples=30, stateful_step_count=25, deadline=None, derandomize=True)
    run_state_machine_as_test(machine, settings=examples)


def test_unavailable_is_the_answer_of_a_closed_store(tmp_path: Path) -> None:
    async def check() -> None:
        async with sqlite(tmp_path) as store:
            await apply(store, put(a=b"1"))
        with pytest.raises(Unavailable):
            await store.get([LEASE])
        with pytest.raises(Unavailable):
            await store.transact([put(a=b"2")])

    asyncio.run(check())
