"""What every metadata store must do: rows, transactions, watches."""

import asyncio

import pytest
from support.fakes.stores import Run, apply, contents, put, refuse

from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Refused, Store, Transaction


def test_get_answers_in_the_order_asked(run: Run) -> None:
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


def test_get_takes_many_addresses(run: Run) -> None:
    async def check(store: Store) -> None:
        version = await apply(store, Transaction("s", {}, {f"{n:04d}": str(n).encode() for n in range(700)}))
        wanted = [Address("s", f"{n:04d}") for n in range(900)]
        expected = [Entry(f"{n:04d}", str(n).encode(), version) if n < 700 else None for n in range(900)]
        assert await store.get(wanted) == expected
        assert len(await store.range("s", "", "~")) == 700

    run(check)


def test_shards_are_those_with_entries_in_order(run: Run) -> None:
    async def check(store: Store) -> None:
        assert await store.shards("", "~") == []
        for name in ("g/b", "g/a", "g", "g0", "f", "g/é", "g/empty"):
            await apply(store, Transaction(name, {}, {"a": b"1", "b": b"2"}))
        await apply(store, Transaction("g/empty", {}, {}, deletes=["a", "b"]))
        await store.get([Address("g/asked", "a")])
        assert await store.shards("g/", "g0") == ["g/a", "g/b", "g/é"]
        assert await store.shards("g/b", "g/b") == []
        assert await store.shards("", "g/b") == ["f", "g", "g/a"]

    run(check)


def test_range_is_ordered_and_its_end_exclusive(run: Run) -> None:
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


def test_values_keep_every_byte(run: Run) -> None:
    async def check(store: Store) -> None:
        values = {"all": bytes(range(256)) * 40, "none": b"", "a,b:c": b"a,b:c", "'": b"';--"}
        await apply(store, Transaction("s,:'", {}, values))
        assert await contents(store, "s,:'") == values

    run(check)


def test_absent_check_creates_once(run: Run) -> None:
    async def check(store: Store) -> None:
        version = await apply(store, put(a=b"1", checks={"a": ABSENT}))
        assert version > ABSENT
        assert await refuse(store, put(a=b"2", checks={"a": ABSENT})) == {"a": Entry("a", b"1", version)}
        assert await contents(store) == {"a": b"1"}

    run(check)


def test_refusal_tells_only_the_failed_checks(run: Run) -> None:
    async def check(store: Store) -> None:
        version = await apply(store, put(a=b"1", b=b"1"))
        later = await apply(store, put(b=b"2"))
        transaction = put(z=b"never", checks={"a": version, "b": version, "gone": version, "none": ABSENT})
        assert await refuse(store, transaction) == {"b": Entry("b", b"2", later), "gone": None}
        assert await contents(store) == {"a": b"1", "b": b"2"}

    run(check)


def test_refused_transaction_changes_nothing(run: Run) -> None:
    async def check(store: Store) -> None:
        before = {"a": b"1", "b": b"2", "c": b"3"}
        await apply(store, Transaction("s", {}, before))
        await refuse(store, Transaction("s", {"none": 7}, {"a": b"x", "d": b"x"}, ["b"], [("", "~")]))
        assert await contents(store) == before

    run(check)


def test_checks_are_of_the_own_shard(run: Run) -> None:
    async def check(store: Store) -> None:
        version = await apply(store, put("t", a=b"1"))
        assert await refuse(store, put("s", a=b"1", checks={"a": version})) == {"a": None}

    run(check)


def test_many_transactions_have_their_own_outcomes(run: Run) -> None:
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


def test_deletes_go_first_then_puts(run: Run) -> None:
    async def check(store: Store) -> None:
        await apply(store, put(a=b"1", b=b"1", c=b"1"))
        await apply(store, Transaction("s", {}, {"a": b"2", "b": b"2"}, ["a", "none"], [("b", "d")]))
        assert await contents(store) == {"a": b"2", "b": b"2"}

    run(check)


def test_range_delete_spares_the_neighbours(run: Run) -> None:
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


def test_versions_of_a_shard_grow_and_are_never_reused(run: Run) -> None:
    async def check(store: Store) -> None:
        versions = [await apply(store, put(a=b"1"))]
        versions.append(await apply(store, Transaction("s", {}, {}, ["a"])))
        versions.append(await apply(store, put(a=b"1", checks={"a": ABSENT})))
        await refuse(store, put(a=b"1", checks={"a": versions[0]}))
        versions.append(await apply(store, Transaction("s", {}, {}, [], [("", "~")])))
        assert await store.shards("", "~") == []
        versions.append(await apply(store, put(a=b"1", checks={"a": ABSENT})))
        assert versions == sorted(set(versions))
        (entry,) = await store.get([Address("s", "a")])
        assert entry is not None
        assert entry.version == versions[-1]

    run(check)


def test_concurrent_increments_are_all_counted(run: Run) -> None:
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


def test_watch_returns_at_once_when_something_differs(run: Run) -> None:
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
def test_watch_wakes_on(run: Run, change: Transaction) -> None:
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


def test_watch_sleeps_through_what_it_did_not_ask_for(run: Run) -> None:
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


def test_watch_times_out_after_its_time(run: Run) -> None:
    async def check(store: Store) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        assert not await store.watch({Address("s", "a"): ABSENT}, timeout_ms=60)
        assert loop.time() - started >= 0.055
        assert not await store.watch({}, timeout_ms=1)

    run(check)


def test_watch_can_be_cancelled(run: Run) -> None:
    async def check(store: Store) -> None:
        waiting = asyncio.create_task(store.watch({Address("s", "a"): ABSENT}, timeout_ms=60_000))
        await asyncio.sleep(0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await apply(store, put(a=b"1"))
        assert await store.watch({Address("s", "a"): ABSENT}, timeout_ms=60_000)

    run(check)
