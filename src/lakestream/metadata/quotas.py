"""The quotas of clients: one row for all of them, changed by compare-and-set.

An entity says whose quota it is, by kinds and names as Kafka has them: `{"client-id": "etl"}`; None for a name is the
default of its kind.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Store, Transaction

Entity = Mapping[str, str | None]

_ROW: Final = Address("quotas", "all")


class Quota(msgspec.Struct, frozen=True):
    """`limits`: by their names in Kafka, per second."""

    entity: dict[str, str | None]
    limits: dict[str, float]


class QuotasAt(msgspec.Struct, frozen=True):
    """As they were at that version of the row."""

    version: int
    quotas: tuple[Quota, ...]


async def read_quotas(store: Store) -> QuotasAt:
    [entry] = await store.get([_ROW])
    if entry is None:
        return QuotasAt(ABSENT, ())
    return QuotasAt(entry.version, codec.decode(entry.value, tuple[Quota, ...], _ROW))


async def change_quotas(store: Store, change: Callable[[Sequence[Quota]], Sequence[Quota]]) -> QuotasAt:
    """Whoever loses a race computes anew."""
    while True:
        known = await read_quotas(store)
        changed = tuple(change(known.quotas))
        if changed == known.quotas:
            return known
        rows = {_ROW.key: codec.encode(changed, _ROW)}
        [outcome] = await store.transact([Transaction(_ROW.shard, {_ROW.key: known.version}, rows)])
        if isinstance(outcome, Applied):
            return QuotasAt(outcome.version, changed)
