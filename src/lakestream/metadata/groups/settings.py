"""Settings of single groups: one row for all of them, changed by compare-and-set. They outlive their groups."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Store, Transaction

Named = Mapping[str, str]
"""Settings by their names, as text."""

_ROW: Final = Address("group-settings", "all")


class GroupSettingsAt(msgspec.Struct, frozen=True):
    """By group, as they were at that version of the row. A group without settings is not there."""

    version: int
    by_group: Mapping[str, Named]


async def read_group_settings(store: Store) -> GroupSettingsAt:
    [entry] = await store.get([_ROW])
    if entry is None:
        return GroupSettingsAt(ABSENT, {})
    return GroupSettingsAt(entry.version, codec.decode(entry.value, dict[str, dict[str, str]], _ROW))


async def change_group_settings(store: Store, group: str, change: Callable[[Named], Named]) -> GroupSettingsAt:
    """Whoever loses a race computes anew. Raises what `change` raises."""
    while True:
        known = await read_group_settings(store)
        present = known.by_group.get(group, {})
        wanted = dict(change(present))
        if wanted == present:
            return known
        changed = {name: dict(named) for name, named in known.by_group.items() if name != group}
        if wanted:
            changed[group] = wanted
        rows = {_ROW.key: codec.encode(changed, _ROW)}
        [outcome] = await store.transact([Transaction(_ROW.shard, {_ROW.key: known.version}, rows)])
        if isinstance(outcome, Applied):
            return GroupSettingsAt(outcome.version, changed)
