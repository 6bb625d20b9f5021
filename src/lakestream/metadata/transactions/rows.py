"""Reading and changing what is stored of transactional ids. Every change is one compare-and-set of the state, or checks
it: whoever is late, or comes twice, changes nothing."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from lakestream.errors import CorruptObject
from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Store, Transaction
from lakestream.metadata.transactions.model import (
    ENLISTED,
    SHARDS,
    STATE,
    TIMER,
    TransactionState,
    group_key,
    partition_key,
    partition_of,
    shard_of,
    state_address,
)
from lakestream.model import StreamPartition


class StoredTransaction(NamedTuple):
    """A transactional id's state as it was read or written."""

    state: TransactionState
    version: int


class EnlistedGroup(NamedTuple):
    number: int
    group: str


class EnlistedParts(NamedTuple):
    """Of the transaction with that number."""

    partitions: Sequence[StreamPartition]
    groups: Sequence[str]


async def read_state(store: Store, transactional_id: str) -> StoredTransaction | None:
    """None: nobody has used the id, or not for long."""
    [found] = await read_states(store, [transactional_id])
    if isinstance(found, CorruptObject):
        raise found
    return found


async def read_states(store: Store, transactional_ids: Sequence[str]) -> list[StoredTransaction | CorruptObject | None]:
    """In one round trip. Damage of one is that one's."""
    addresses = [state_address(each) for each in transactional_ids]
    return [_read(entry, address) for entry, address in zip(await store.get(addresses), addresses, strict=True)]


async def names_from(store: Store, start: str, limit: int) -> list[str]:
    """The names of at most so many ids, from this one on, in order. Each is good for `read_named`."""
    shards = await store.shards(f"{SHARDS[0]}{start}", SHARDS[1])
    return [shard.removeprefix(SHARDS[0]) for shard in shards[:limit]]


async def read_named(store: Store, names: Sequence[str]) -> list[StoredTransaction | CorruptObject | None]:
    addresses = [Address(f"{SHARDS[0]}{name}", STATE) for name in names]
    return [_read(entry, address) for entry, address in zip(await store.get(addresses), addresses, strict=True)]


async def write_state(
    store: Store, state: TransactionState, version: int, *, is_over: bool = False
) -> StoredTransaction | None:
    """Puts the state in place of the one with this version. None: it is another by now. `is_over`: nothing of its
    transaction is needed any more."""
    address = state_address(state.transactional_id)
    put = {STATE: codec.encode(state, address)}
    ranges = [ENLISTED] if is_over else ()
    [outcome] = await store.transact([Transaction(address.shard, {STATE: version}, put, (), ranges)])
    return StoredTransaction(state, outcome.version) if isinstance(outcome, Applied) else None


async def enlist(
    store: Store,
    present: StoredTransaction,
    wanted: TransactionState,
    partitions: Collection[StreamPartition],
    groups: Collection[str] = (),
) -> tuple[bool, StoredTransaction | None]:
    """Adds partitions and groups to the transaction of `wanted`, which is `present`'s, or begins. Whether that was
    done, and what is stored now."""
    shard = shard_of(wanted.transactional_id)
    puts = {
        key: codec.encode(wanted.number, Address(shard, key)) for key in (partition_key(each) for each in partitions)
    }
    for group in groups:
        key = group_key(group)
        puts[key] = codec.encode(EnlistedGroup(wanted.number, group), Address(shard, key))
    begins = wanted is not present.state
    if begins:
        puts[STATE] = codec.encode(wanted, Address(shard, STATE))
    [outcome] = await store.transact([Transaction(shard, {STATE: present.version}, puts)])
    if isinstance(outcome, Applied):
        return True, StoredTransaction(wanted, outcome.version) if begins else present
    return False, _whole(_read(outcome.current[STATE], Address(shard, STATE)))


async def enlisted_of(
    store: Store, transactional_id: str, partitions: Sequence[StreamPartition], groups: Sequence[str] = ()
) -> tuple[StoredTransaction | None, list[bool]]:
    """The state, and which of these (partitions first) its present transaction has."""
    shard = shard_of(transactional_id)
    keys = [partition_key(each) for each in partitions]
    group_keys = [group_key(each) for each in groups]
    state, *rows = await store.get([Address(shard, key) for key in (STATE, *keys, *group_keys)])
    stored = _whole(_read(state, Address(shard, STATE)))
    if stored is None:
        return None, [False] * len(rows)
    numbers = [_number(row, shard) for row in rows[: len(keys)]]
    numbers += [None if row is None else _group(row, shard).number for row in rows[len(keys) :]]
    return stored, [number == stored.state.number for number in numbers]


async def enlisted(store: Store, transactional_id: str) -> EnlistedParts:
    """All that the transaction has, of which the end is prepared: nothing is added any more."""
    shard = shard_of(transactional_id)
    partitions, groups = [], []
    for row in await store.range(shard, *ENLISTED):
        partition = partition_of(row.key)
        if partition is None:
            groups.append(_group(row, shard).group)
        else:
            partitions.append(partition)
    return EnlistedParts(partitions, groups)


async def delete_state(store: Store, present: StoredTransaction) -> bool:
    """Forgets the id, if it still is as it was read."""
    shard = shard_of(present.state.transactional_id)
    checks: Mapping[str, int] = {STATE: present.version}
    [outcome] = await store.transact([Transaction(shard, checks, {}, [STATE, TIMER], [ENLISTED])])
    return isinstance(outcome, Applied)


def _read(entry: Entry | None, address: Address) -> StoredTransaction | CorruptObject | None:
    if entry is None:
        return None
    try:
        return StoredTransaction(codec.decode(entry.value, TransactionState, address), entry.version)
    except CorruptObject as error:
        return error


def _whole(found: StoredTransaction | CorruptObject | None) -> StoredTransaction | None:
    if isinstance(found, CorruptObject):
        raise found
    return found


def _number(row: Entry | None, shard: str) -> int | None:
    return None if row is None else codec.decode(row.value, int, Address(shard, row.key))


def _group(row: Entry, shard: str) -> EnlistedGroup:
    return codec.decode(row.value, EnlistedGroup, Address(shard, row.key))


def version_of(stored: StoredTransaction | None) -> int:
    return ABSENT if stored is None else stored.version
