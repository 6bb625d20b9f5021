"""The disk stores of a cluster: their names, which never change, and what each broker sees of them.

A name stands for one URL for ever, so that the extents that name it stay readable. Rows stay: the
collector looks into every store that was ever named.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Store, Transaction

_SHARD: Final = "disk"
_STORES: Final = ("store/", "store0")
_SEEN_SHARD: Final = "worker/disks"
"""What brokers see dies with them: it is not saved into the bucket."""
_SEEN: Final = ("seen/", "seen0")


class DiskRow(msgspec.Struct, frozen=True, array_like=True):
    """`label`: what the store's own label must say for it to be whole. Empty: it was never used."""

    name: str
    url: str
    label: str = ""


class SeenDisks(msgspec.Struct, frozen=True, array_like=True):
    """What a broker's session has: the stores that it is configured with, and of every named store the label that it
    found there (empty: none, or no answer)."""

    session: str
    configured: tuple[str, ...]
    labels: dict[str, str]


async def disk_rows(store: Store) -> list[DiskRow]:
    """Every store that was ever named, in order of names."""
    rows = await store.range(_SHARD, *_STORES)
    return [codec.decode(row.value, DiskRow, Address(_SHARD, row.key)) for row in rows]


async def name_disks(store: Store, urls: Sequence[str]) -> list[str]:
    """The names of the stores at these URLs, in their order; those that have none get one."""
    while True:
        known = {row.url: row.name for row in await disk_rows(store)}
        fresh = [url for url in urls if url not in known]
        if not fresh:
            return [known[url] for url in urls]
        name = f"disk{len(known) + 1:04d}"
        address = _address(name)
        row = codec.encode(DiskRow(name, fresh[0]), address)
        await store.transact([Transaction(_SHARD, {address.key: ABSENT}, {address.key: row})])


async def relabel_disk(store: Store, name: str, expected: str, label: str) -> bool:
    """The store is whole from now on, and has this label. False: somebody else has changed it."""
    address = _address(name)
    [entry] = await store.get([address])
    if entry is None:
        return False
    row = codec.decode(entry.value, DiskRow, address)
    if row.label != expected:
        return row.label == label
    changed = codec.encode(msgspec.structs.replace(row, label=label), address)
    [outcome] = await store.transact([Transaction(_SHARD, {address.key: entry.version}, {address.key: changed})])
    return isinstance(outcome, Applied)


async def tell_seen(store: Store, seen: SeenDisks) -> None:
    address = _seen_address(seen.session)
    await store.transact([Transaction(_SEEN_SHARD, {}, {address.key: codec.encode(seen, address)})])


async def seen_disks(store: Store) -> list[SeenDisks]:
    """Of all sessions that told, whether they still live or not."""
    return codec.decode_all(await store.range(_SEEN_SHARD, *_SEEN), SeenDisks, _SEEN_SHARD)


async def forget_seen(store: Store, sessions: Iterable[str]) -> None:
    keys = [_seen_address(session).key for session in sessions]
    if keys:
        await store.transact([Transaction(_SEEN_SHARD, {}, {}, deletes=keys)])


async def forget_disks(store: Store) -> None:
    """Of a cluster that became another one. Only for a store that no process uses, and whose log names none."""
    await store.transact([Transaction(_SHARD, {}, {}, delete_ranges=[_STORES])])


def _address(name: str) -> Address:
    return Address(_SHARD, f"store/{name}")


def _seen_address(session: str) -> Address:
    return Address(_SEEN_SHARD, f"seen/{session}")
