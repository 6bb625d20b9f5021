"""What only a server that compares and sets one key at a time can get wrong: torn batches, late rows, lost answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from unittest.mock import patch

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from support.fakes.loops import run
from support.fakes.stores import apply, contents, put, refuse
from support.servers.oxia import FakeOxia, fake_oxia

from lakestream import metadata
from lakestream.errors import RequestError, Unavailable
from lakestream.metadata.store import ABSENT, Address, Store, Transaction
from lakestream.metadata.stores.oxia import notices
from lakestream.metadata.stores.oxia.client import batching
from lakestream.metadata.stores.oxia.client.calls import SERVICES
from lakestream.metadata.stores.oxia.keys import DATA, FORMAT, row_key
from lakestream.metadata.stores.oxia.shards import writing
from lakestream.metadata.stores.oxia.shards.root import KEEP_MS, WINDOW_MS

HOUR_MS = 3_600_000


@asynccontextmanager
async def opened(fake: FakeOxia, count: int = 1) -> AsyncIterator[list[Store]]:
    """Stores on one server, as brokers on several machines have them."""
    async with fake_oxia(fake), AsyncExitStack() as stack:
        stores = []
        for _ in range(count):
            stores.append(await metadata.open(fake.url))
            stack.push_async_callback(stores[-1].close)
        yield stores


class Gate:
    """Holds the first write of a key back until it is opened."""

    def __init__(self, fake: FakeOxia, key: str) -> None:
        self._key = key
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        fake.pauses.append(self._pause)

    async def _pause(self, key: str) -> None:
        if key == self._key and not self.reached.is_set():
            self.reached.set()
            await self.opened.wait()


def refuse_rows(fake: FakeOxia) -> None:
    """From now on the roots are written, and their rows are not."""

    async def torn(key: str) -> None:
        if key.startswith(DATA):
            raise GRPCError(Status.UNAVAILABLE, "torn")

    fake.pauses.append(torn)


async def row_is_there(fake: FakeOxia, key: str) -> None:
    for _ in range(2_000):
        if row_key("s", DATA, key) in fake.core_of("s").records:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"the row of {key} was never written")


@pytest.mark.parametrize("later_ms", [0, WINDOW_MS + 1, HOUR_MS])
def test_rows_that_their_writer_never_wrote_are_read_and_finished_by_the_next(later_ms: int) -> None:
    async def check() -> None:
        fake = FakeOxia()
        async with opened(fake, 3) as (one, two, three):
            await apply(one, put(a=b"0", b=b"0", c=b"0"))
            await row_is_there(fake, "c")
            refuse_rows(fake)
            version = await apply(one, Transaction("s", {}, {"a": b"1", "d": b"1"}, ["b"]))
            fake.skew_ms += later_ms
            expected = {"a": b"1", "c": b"0", "d": b"1"}
            assert await contents(two) == expected
            fake.pauses.clear()
            assert (await refuse(two, put(a=b"2", checks={"a": ABSENT})))["a"].version == version  # type: ignore[union-attr]
            await apply(two, put(e=b"2", checks={"a": version, "b": ABSENT}))
            assert await contents(three) == expected | {"e": b"2"}
            await apply(three, put("s", e=b"3", checks={"d": version}))
            assert await contents(one) == expected | {"e": b"3"}

    run(check())


@pytest.mark.parametrize("later_ms", [0, KEEP_MS + 1, HOUR_MS])
def test_a_row_that_arrives_late_does_not_bring_back_what_was_deleted(later_ms: int) -> None:
    async def check() -> None:
        fake = FakeOxia()
        key = row_key("s", DATA, "a")
        async with opened(fake, 3) as (late, two, three):
            await apply(late, put(b=b"0"))
            gate = Gate(fake, key)
            await apply(late, put(a=b"late"))
            await gate.reached.wait()
            await apply(two, Transaction("s", {}, {"c": b"1"}, ["a"]))
            fake.skew_ms += later_ms
            # What is older than the window is swept, and its grave dropped, by the writes that follow.
            for number in range(4):
                await apply(two, put(c=str(number).encode()))
            gate.opened.set()
            await asyncio.sleep(0.1)
            for store in (late, two, three):
                assert await contents(store) == {"b": b"0", "c": b"3"}
                assert await store.get([Address("s", "a")]) == [None]
            fake.skew_ms += KEEP_MS + 1
            for number in range(4):
                await apply(three, put(c=str(number).encode(), checks={"a": ABSENT}))
            assert await contents(three) == {"b": b"0", "c": b"3"}
            version = await apply(three, put(a=b"anew", checks={"a": ABSENT}))
            assert (await late.get([Address("s", "a")]))[0].version == version  # type: ignore[union-attr]

    run(check())


def test_a_row_that_arrives_late_does_not_replace_a_newer_one() -> None:
    async def check() -> None:
        fake = FakeOxia()
        async with opened(fake, 2) as (late, two):
            await apply(late, put(a=b"0"))
            await apply(late, put(b=b"0"))
            gate = Gate(fake, row_key("s", DATA, "a"))
            await apply(late, put(a=b"late"))
            await gate.reached.wait()
            version = await apply(two, put(a=b"newer"))
            gate.opened.set()
            await asyncio.sleep(0.1)
            assert (await late.get([Address("s", "a")]))[0].version == version  # type: ignore[union-attr]

    run(check())


def test_who_was_late_once_does_not_write_over_rows_that_are_there() -> None:
    """A row of its redo lands too late, where another process had deleted it; of the others that one has taken care.
    Applied again, for what comes next, none of them may be written over: it would be too late to count."""

    async def check() -> None:
        fake = FakeOxia()
        async with opened(fake, 2) as (late, two):
            await apply(late, put(b=b"0"))
            gate = Gate(fake, row_key("s", DATA, "a"))
            await apply(late, put(a=b"late", kept=b"1", changed=b"1"))
            await gate.reached.wait()
            await apply(two, Transaction("s", {}, {"changed": b"2"}, ["a"]))
            await apply(two, put(c=b"2"))
            await row_is_there(fake, "c")
            fake.skew_ms += WINDOW_MS + 1
            gate.opened.set()
            await row_is_there(fake, "a")
            await apply(late, put(d=b"3"))
            expected = {"b": b"0", "c": b"2", "changed": b"2", "d": b"3", "kept": b"1"}
            for store in (late, two):
                assert await contents(store) == expected

    run(check())


def test_a_write_whose_answer_is_lost_is_known_again() -> None:
    async def check() -> None:
        fake = FakeOxia(tears=0.3)
        with patch.object(writing, "SENDS", 20), patch.object(writing, "PAUSE_S", 0.001):
            async with fake_oxia(fake):
                fake.tears = 0.0
                store = await metadata.open(fake.url)
                fake.tears = 0.3
                versions = []
                for number in range(60):
                    last = versions[-1] if versions else ABSENT
                    versions.append(await apply(store, put(n=str(number).encode(), checks={"n": last})))
                assert versions == sorted(set(versions))
                fake.tears = 0.0
                assert await contents(store) == {"n": b"59"}
                await store.close()

    run(check())


def test_a_server_that_says_nothing_leaves_the_outcome_unknown() -> None:
    async def check() -> None:
        fake = FakeOxia()
        with patch.object(batching, "TIMEOUT_S", 0.1), patch.object(writing, "SENDS", 1):
            async with opened(fake) as (store,):
                gate = Gate(fake, "rs")
                with pytest.raises(Unavailable, match="unknown"):
                    await apply(store, put(a=b"1"))
                gate.opened.set()
                assert await contents(store) in ({}, {"a": b"1"})
                await apply(store, put(a=b"2"))
                assert await contents(store) == {"a": b"2"}

    run(check())


def test_a_server_that_was_away_is_found_again() -> None:
    async def check() -> None:
        fake = FakeOxia()
        async with opened(fake) as (store,):
            version = await apply(store, put(a=b"1"))
            watching = asyncio.create_task(store.watch({Address("s", "a"): version}, timeout_ms=60_000))
            await asyncio.sleep(0.05)
            fake.go_down()
            with pytest.raises(Unavailable):
                await apply(store, put(a=b"2", checks={"a": version}))
            with pytest.raises(Unavailable):
                await contents(store)
            fake.is_up = True
            assert await contents(store) == {"a": b"1"}
            await apply(store, put(a=b"2", checks={"a": version}))
            async with asyncio.timeout(20):
                assert await watching

    run(check())


@pytest.mark.parametrize("is_notifying", [True, False])
def test_watchers_on_other_machines_wake(is_notifying: bool) -> None:
    async def check() -> None:
        fake = FakeOxia(is_notifying=is_notifying, shards=2)
        with patch.object(notices, "POLL_INTERVAL_S", 60.0 if is_notifying else 0.05):
            async with opened(fake, 2) as (one, two):
                version = await apply(one, put(a=b"1"))
                watching = asyncio.create_task(two.watch({Address("s", "a"): version}, timeout_ms=60_000))
                await asyncio.sleep(0.2)
                assert not watching.done()
                await apply(one, put(b=b"1"))
                await apply(one, put("t", a=b"1"))
                await asyncio.sleep(0.1)
                assert not watching.done()
                await apply(one, put(a=b"2"))
                async with asyncio.timeout(20):
                    assert await watching

    run(check())


def test_leases_are_judged_by_the_servers_clock_alone() -> None:
    async def check() -> None:
        fake = FakeOxia(skew_ms=-HOUR_MS)
        async with opened(fake, 2) as (one, two):
            lease = Address("s", "lease")
            mine = await one.acquire_lease(lease, "me", ttl_ms=10_000)
            assert (await two.acquire_lease(lease, "you", ttl_ms=10_000)).holder == "me"
            assert [held.holder for _, held in await two.leases("s", "", "~")] == ["me"]
            fake.skew_ms += 9_000
            assert (await one.acquire_lease(lease, "me", ttl_ms=10_000)).token == mine.token
            fake.skew_ms += 9_000
            assert (await two.acquire_lease(lease, "you", ttl_ms=10_000)).holder == "me"
            fake.skew_ms += HOUR_MS
            assert await one.leases("s", "", "~") == []
            theirs = await two.acquire_lease(lease, "you", ttl_ms=10_000)
            assert theirs.holder == "you"
            assert theirs.token > mine.token
            await refuse(one, put(a=b"1", checks={"lease": mine.token}))

    run(check())


def test_what_is_too_large_is_refused_and_nothing_is_written() -> None:
    async def check() -> None:
        async with opened(FakeOxia()) as (store,):
            version = await apply(store, put(a=b"1"))
            with pytest.raises(RequestError, match="too large for Oxia"):
                await apply(store, put(a=bytes(3 << 20)))
            large = bytes(1 << 20)
            await apply(store, put(a=large, checks={"a": version}))
            assert await contents(store) == {"a": large}

    run(check())


def test_many_shards_are_written_together() -> None:
    async def check() -> None:
        fake = FakeOxia()
        async with opened(fake) as (store,):
            names = [f"log/{number:04d}" for number in range(300)]
            first = await store.transact([Transaction(name, {"head": ABSENT}, {"head": b"1"}) for name in names])
            await store.get([Address(names[0], "head")])
            before = fake.requests
            versions = [outcome.version for outcome in first]  # type: ignore[union-attr]
            again = [Transaction(n, {"head": v}, {"head": b"2"}) for n, v in zip(names, versions, strict=True)]
            await store.transact(again)
            assert fake.requests - before <= 10
            assert await store.shards("log/", "log0") == names

    run(check())


def test_an_older_server_is_spoken_to_by_its_name() -> None:
    async def check() -> None:
        async with opened(FakeOxia(service=SERVICES[1])) as (store,):
            await apply(store, put(a=b"1"))

    run(check())


def test_what_cannot_be_used_is_said_at_the_start() -> None:
    async def check() -> None:
        with pytest.raises(Unavailable, match=r"oxia://127\.0\.0\.1:1/default cannot be reached"):
            await metadata.open("oxia://127.0.0.1:1")
        async with fake_oxia(FakeOxia()) as fake:
            with pytest.raises(RequestError, match="no namespace 'other'"):
                await metadata.open(fake.url.replace("default", "other"))
            await (await metadata.open(f"oxia://127.0.0.1:1,127.0.0.1:{fake.port}/default")).close()
        fake = FakeOxia(service="some.other.Service")
        async with fake_oxia(fake):
            with pytest.raises(RequestError, match="no Oxia server"):
                await metadata.open(fake.url)
        fake = FakeOxia()
        async with fake_oxia(fake):
            await (await metadata.open(fake.url)).close()
            [record] = [core.records[FORMAT] for core in fake.cores if FORMAT in core.records]
            fake.core_of(FORMAT).records[FORMAT] = record._replace(value=b"lakestream 2")
            with pytest.raises(RequestError, match="another version of lakestream"):
                await metadata.open(fake.url)
        for url, words in {
            "oxia://": "write oxia://host:port/namespace",
            "oxia://host:99999/a": "write oxia://host:port/namespace",
            "oxia://user:secret@host/a": "does not log in",
            "oxia://host/a/b": "has no /",
            "oxia://host/a?tls=true": "takes no options",
        }.items():
            with pytest.raises(RequestError, match=words) as refused:
                await metadata.open(url)
            assert "secret" not in str(refused.value)

    run(check())
