"""What every metadata store must do: leases."""

import asyncio

import pytest
from support.fakes.stores import Run, apply, put, refuse

from lakestream.metadata import codec
from lakestream.metadata.store import Address, Entry, Lease, Store, Transaction

LEASE = Address("s", "lease")


def test_lease_is_held_by_one_and_renewed_with_its_token(run: Run) -> None:
    async def check(store: Store) -> None:
        mine = await store.acquire_lease(LEASE, "me", ttl_ms=60_000)
        assert (mine.holder, mine.remaining_ms) == ("me", 60_000)
        theirs = await store.acquire_lease(LEASE, "you", ttl_ms=90_000)
        assert (theirs.holder, theirs.token) == ("me", mine.token)
        assert 0 < theirs.remaining_ms <= 60_000
        renewed = await store.acquire_lease(LEASE, "me", ttl_ms=80_000)
        assert renewed == Lease("me", mine.token, 80_000)
        (entry,) = await store.get([LEASE])
        assert entry == Entry("lease", codec.encode("me", LEASE), mine.token)

    run(check)


@pytest.mark.parametrize("next_holder", ["you", "me"])
def test_expired_lease_gets_a_new_token(run: Run, next_holder: str) -> None:
    async def check(store: Store) -> None:
        mine = await store.acquire_lease(LEASE, "me", ttl_ms=5)
        await asyncio.sleep(0.03)
        assert await store.leases("s", "", "~") == []
        guarded = put(a=b"1", checks={"lease": mine.token})
        await apply(store, guarded)
        theirs = await store.acquire_lease(LEASE, next_holder, ttl_ms=60_000)
        assert theirs.holder == next_holder
        assert theirs.token > mine.token
        assert await refuse(store, guarded) == {"lease": Entry("lease", codec.encode(next_holder, LEASE), theirs.token)}

    run(check)


def test_foreign_release_is_ignored(run: Run) -> None:
    async def check(store: Store) -> None:
        mine = await store.acquire_lease(LEASE, "me", ttl_ms=5)
        await asyncio.sleep(0.03)
        theirs = await store.acquire_lease(LEASE, "you", ttl_ms=60_000)
        await store.release_lease(LEASE, mine.token)
        await store.release_lease(Address("s", "none"), theirs.token)
        assert (await store.acquire_lease(LEASE, "me", ttl_ms=60_000)).token == theirs.token

    run(check)


def test_released_lease_is_free_and_its_token_dead(run: Run) -> None:
    async def check(store: Store) -> None:
        mine = await store.acquire_lease(LEASE, "me", ttl_ms=60_000)
        await store.release_lease(LEASE, mine.token)
        assert await store.leases("s", "", "~") == []
        assert await refuse(store, put(a=b"1", checks={"lease": mine.token})) == {"lease": None}
        theirs = await store.acquire_lease(LEASE, "you", ttl_ms=60_000)
        assert theirs.holder == "you"
        assert theirs.token > mine.token

    run(check)


def test_lease_whose_row_was_replaced_is_free(run: Run) -> None:
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


def test_leases_lists_a_range_in_order(run: Run) -> None:
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


def test_only_a_grant_wakes_watchers_of_a_lease(run: Run) -> None:
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


def test_one_of_many_rivals_gets_the_lease(run: Run) -> None:
    async def check(store: Store) -> None:
        rivals = [f"rival {n}" for n in range(20)]
        leases = await asyncio.gather(*(store.acquire_lease(LEASE, rival, ttl_ms=60_000) for rival in rivals))
        assert len({(lease.holder, lease.token) for lease in leases}) == 1

    run(check)
