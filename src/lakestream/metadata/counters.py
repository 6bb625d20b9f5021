"""Numbers and names that the whole cluster agrees on: WAL generation, producer ids, cluster id."""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Final

from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Store, Transaction
from lakestream.runtime import Runtime

GENERATION: Final = Address("wal", "generation")
_PRODUCERS: Final = Address("producers", "next")
_CLUSTER: Final = Address("cluster", "id")
_FORMER: Final = Address("cluster", "former")

FIRST_GENERATION: Final = 1
PRODUCER_BLOCK: Final = 1000
_SPARE_PRODUCERS: Final = 1000 * PRODUCER_BLOCK


async def current_generation(store: Store) -> int:
    [entry] = await store.get([GENERATION])
    return _number(entry, GENERATION, FIRST_GENERATION)


async def generation_and_clusters(store: Store) -> tuple[int, frozenset[str]]:
    """The ids are the cluster's own and those that it had before its bucket was moved: all whose objects are its own.
    None at all: nobody has asked for the cluster's id yet, so no broker has ever run."""
    generation, cluster, former = await store.get([GENERATION, _CLUSTER, _FORMER])
    names = set() if cluster is None else {codec.decode(cluster.value, str, _CLUSTER)}
    names.update(_names(former))
    return _number(generation, GENERATION, FIRST_GENERATION), frozenset(names)


async def raise_generation(store: Store, expected: int) -> int:
    """Makes it expected + 1 if it is still `expected`; returns what it is now."""

    def raised(present: int) -> int:
        return present + 1 if present == expected else present

    return await _update(store, GENERATION, FIRST_GENERATION, raised)


async def reserve_producer_ids(store: Store) -> range:
    """A block of producer ids that nobody else was or will be given."""
    end = await _update(store, _PRODUCERS, 0, lambda present: present + PRODUCER_BLOCK)
    return range(end - PRODUCER_BLOCK, end)


async def known_cluster(store: Store) -> str | None:
    """The cluster's id. None: nobody has ever asked for it, so no process has lived on this store."""
    [entry] = await store.get([_CLUSTER])
    return None if entry is None else codec.decode(entry.value, str, _CLUSTER)


async def former_clusters(store: Store) -> list[str]:
    """The ids that this cluster had before it became one of its own, the newest first."""
    [entry] = await store.get([_FORMER])
    return _names(entry)


async def begin_cluster(store: Store, runtime: Runtime) -> str:
    """Gives the cluster another id, which is returned. Only for a store that no process uses."""
    while True:
        cluster, former = await store.get([_CLUSTER, _FORMER])
        assert cluster is not None
        fresh = fresh_id(runtime)
        names = [codec.decode(cluster.value, str, _CLUSTER), *_names(former)]
        change = Transaction(
            _CLUSTER.shard,
            {_CLUSTER.key: cluster.version, _FORMER.key: ABSENT if former is None else former.version},
            {_CLUSTER.key: codec.encode(fresh, _CLUSTER), _FORMER.key: codec.encode(names, _FORMER)},
        )
        [outcome] = await store.transact([change])
        if isinstance(outcome, Applied):
            return fresh


async def restore_cluster(store: Store, cluster: str) -> None:
    """Gives a store that was rebuilt the id that its cluster had."""
    put = {_CLUSTER.key: codec.encode(cluster, _CLUSTER)}
    await store.transact([Transaction(_CLUSTER.shard, {_CLUSTER.key: ABSENT}, put)])


async def restore_numbers(store: Store, *, generation: int, producer_id: int) -> None:
    """Of a store that was rebuilt: this generation, and producer ids far above all that were given by those who knew
    more than what is left."""
    await _update(store, GENERATION, FIRST_GENERATION, lambda present: max(present, generation))
    await _update(store, _PRODUCERS, 0, lambda present: max(present, producer_id + 1) + _SPARE_PRODUCERS)


async def cluster_id(store: Store, runtime: Runtime) -> str:
    """Chosen once, by whoever asks first."""
    fresh = fresh_id(runtime)
    [outcome] = await store.transact(
        [Transaction(_CLUSTER.shard, {_CLUSTER.key: ABSENT}, {_CLUSTER.key: codec.encode(fresh, _CLUSTER)})]
    )
    if isinstance(outcome, Applied):
        return fresh
    entry = outcome.current[_CLUSTER.key]
    assert entry is not None
    return codec.decode(entry.value, str, _CLUSTER)


def fresh_id(runtime: Runtime) -> str:
    return urlsafe_b64encode(runtime.new_id().bytes).rstrip(b"=").decode()


def _names(entry: Entry | None) -> list[str]:
    return [] if entry is None else codec.decode(entry.value, list[str], _FORMER)


async def _update(store: Store, address: Address, initial: int, change: Callable[[int], int]) -> int:
    [entry] = await store.get([address])
    while True:
        present = _number(entry, address, initial)
        wanted = change(present)
        if wanted == present:
            return present
        version = entry.version if entry is not None else ABSENT
        update = Transaction(address.shard, {address.key: version}, {address.key: codec.encode(wanted, address)})
        [outcome] = await store.transact([update])
        if isinstance(outcome, Applied):
            return wanted
        entry = outcome.current[address.key]


def _number(entry: Entry | None, address: Address, initial: int) -> int:
    return initial if entry is None else codec.decode(entry.value, int, address)
