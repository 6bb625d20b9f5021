"""Several stores: who has to have an object before it counts, and what is said of one that is not found."""

from collections.abc import Awaitable, Callable

import pytest
from support.fakes.disks import FailingObjects, labelled

from lakestream.errors import ObjectMissing, Unavailable
from lakestream.objects import MemoryObjects
from lakestream.runtime import system
from lakestream.wal import DiskStore, MajorityWriter, WalStores

KEY = "wal/0000000001/s-0000000001.wal"
Disks = list[tuple[DiskStore, FailingObjects]]


async def with_disks(count: int, check: Callable[[Disks], Awaitable[None]]) -> None:
    await check(await labelled(count))


def writer(disks: Disks) -> MajorityWriter:
    return MajorityWriter(lambda: [disk for disk, _ in disks])


def stores(disks: Disks, bucket: MemoryObjects | None = None) -> WalStores:
    return WalStores(bucket or MemoryObjects(system().clock), [disk for disk, _ in disks])


def names(disks: Disks, *numbers: int) -> tuple[str, ...]:
    return tuple(disks[number][0].name for number in numbers)


def holders(disks: Disks) -> list[str]:
    return [disk.name for disk, objects in disks if KEY in objects.core._objects]


@pytest.mark.parametrize(("count", "failing"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)])
async def test_a_majority_is_enough(count: int, failing: int) -> None:
    async def check(disks: Disks) -> None:
        for _, objects in disks[:failing]:
            objects.down = True
        named = await writer(disks).put(KEY, [b"re", b"cords"])
        assert len(named) >= count // 2 + 1
        assert set(named) <= set(holders(disks))

    await with_disks(count, check)


@pytest.mark.parametrize(("count", "failing"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
async def test_fewer_are_not(count: int, failing: int) -> None:
    async def check(disks: Disks) -> None:
        for _, objects in disks[:failing]:
            objects.down = True
        with pytest.raises(Unavailable, match="is down"):
            await writer(disks).put(KEY, [b"records"])

    await with_disks(count, check)


async def test_a_store_that_cannot_be_used_counts_against_the_majority() -> None:
    async def check(disks: Disks) -> None:
        for disk, _ in disks[:2]:
            disk.usable, disk.trouble = False, "broker 7 cannot read it"
        with pytest.raises(Unavailable, match=r"1 of 3 .* 2 are needed: .*broker 7 cannot read it"):
            await writer(disks).put(KEY, [b"records"])
        assert holders(disks) == []

    await with_disks(3, check)


async def test_a_store_that_hangs_is_not_waited_for_and_passed_by_in_the_end() -> None:
    async def check(disks: Disks) -> None:
        disks[0][1].hangs = True
        writing = writer(disks)
        for number in range(20):
            named = await writing.put(f"wal/0000000001/s-{number:010d}.wal", [b"records"])
            assert named == names(disks, 1, 2)
        assert disks[0][1].puts < 10

    await with_disks(3, check)


async def test_a_store_that_lost_its_label_does_not_count_although_it_takes_the_object() -> None:
    async def check(disks: Disks) -> None:
        disks[0][1].empty()
        assert await writer(disks).put(KEY, [b"records"]) == names(disks, 1, 2)
        disks[1][1].empty()
        with pytest.raises(Unavailable):
            await writer(disks).put(KEY.replace("s-", "t-"), [b"records"])

    await with_disks(3, check)


async def test_a_store_that_was_copied_again_meanwhile_does_not_count() -> None:
    """Who did that may have listed the others before they had this object."""

    async def check(disks: Disks) -> None:
        disk, objects = disks[0]
        await objects.core.put("lakestream/disk/cluster.label", [b"disk1 second"], overwrite=True)
        assert disk.name not in await writer(disks).put(KEY, [b"records"])

    await with_disks(3, check)


async def test_readers_try_the_named_stores_then_the_bucket_then_the_others() -> None:
    async def check(disks: Disks) -> None:
        bucket = MemoryObjects(system().clock)
        wal = stores(disks, bucket)
        await disks[2][1].put(KEY, [b"other"])
        assert await wal.read(names(disks, 0, 1), KEY, 0, 5) == b"other"
        await bucket.put(KEY, [b"spilt"])
        assert await wal.read(names(disks, 0, 1), KEY, 0, 5) == b"spilt"
        await disks[1][1].put(KEY, [b"named"])
        assert await wal.read(names(disks, 0, 1), KEY, 0, 5) == b"named"
        disks[0][1].down = True
        assert await wal.read(names(disks, 0, 1), KEY, 0, 5) == b"named"
        disks[1][1].down = True
        assert await wal.read(names(disks, 0, 1), KEY, 0, 5) == b"spilt"

    await with_disks(3, check)


async def test_missing_is_what_every_store_says_that_is_whole() -> None:
    async def check(disks: Disks) -> None:
        wal = stores(disks)
        with pytest.raises(ObjectMissing):
            await wal.read(names(disks, 0, 1), KEY, 0, 5)
        disks[1][1].down = True
        with pytest.raises(Unavailable, match="is down"):
            await wal.read(names(disks, 0, 1), KEY, 0, 5)
        disks[1][1].down = False
        disks[0][1].empty()
        with pytest.raises(Unavailable, match="is not whole"):
            await wal.read(names(disks, 0, 1), KEY, 0, 5)
        with pytest.raises(Unavailable, match="disk9 is not known"):
            await wal.read(("disk9",), KEY, 0, 5)

    await with_disks(3, check)


async def test_a_damaged_copy_is_passed_by() -> None:
    async def check(disks: Disks) -> None:
        wal = stores(disks)
        await disks[0][1].put(KEY, [b"wrong"])
        await disks[1][1].put(KEY, [b"right"])
        read = wal.read(names(disks, 0, 1), KEY, 0, 5, is_right=lambda data: data == b"right")
        assert await read == b"right"
        # What no copy has is for the caller to judge.
        assert await wal.read(names(disks, 0), KEY, 0, 5, is_right=lambda data: False) in (b"wrong", b"right")

    await with_disks(3, check)


async def test_listings_have_every_key_once_and_deletes_reach_every_store() -> None:
    async def check(disks: Disks) -> None:
        bucket = MemoryObjects(system().clock)
        wal = stores(disks, bucket)
        for number, objects in enumerate([bucket, *(objects for _, objects in disks)]):
            for name in ("both", f"only{number}"):
                await objects.put(f"wal/{name}", [b"x"])
        keys = [info.key async for info in wal.list("wal/")]
        assert keys == ["wal/both", "wal/only0", "wal/only1", "wal/only2", "wal/only3"]
        assert wal.places("wal/both") == ("main", *names(disks, 0, 1, 2))
        assert [info.key async for info in wal.list("wal/", after="wal/only1")] == keys[3:]
        disks[2][1].down = True
        assert "wal/only3" not in [info.key async for info in wal.list("wal/")]
        with pytest.raises(Unavailable):
            await wal.delete(keys)
        disks[2][1].down = False
        assert [info.key async for info in wal.list("wal/")] == ["wal/both", "wal/only3"]
        await wal.delete(keys)
        assert [info.key async for info in wal.list("wal/")] == []

    await with_disks(3, check)
