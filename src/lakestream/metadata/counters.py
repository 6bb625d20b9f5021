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

FIRST_GENERATION: Final = 1
PRODUCER_BLOCK: Final = 1000


async def current_generation(store: Store) -> int:
    [entry] = await store.get([GENERATION])
    return _number(entry, GENERATION, FIRST_GENERATION)


async def generation_and_cluster(store: Store) -> tuple[int, str | None]:
    """None: nobody has asked for the cluster's id yet, so no broker has ever run."""
    generation, cluster = await store.get([GENERATION, _CLUSTER])
    name = None if cluster is None else codec.decode(cluster.value, str, _CLUSTER)
    return _number(generation, GENERATION, FIRST_GENERATION), name


async def raise_generation(store: Store, expected: int) -> int:
    """Makes it expected + 1 if it is still `expected`; returns what it is now."""

    def raised(present: int) -> int:
        return present + 1 if present == expected else present

    return await _update(store, GENERATION, FIRST_GENERATION, raised)


async def reserve_producer_ids(store: Store) -> range:
    """A block of producer ids that nobody else was or will be given."""
    end = await _update(store, _PRODUCERS, 0, lambda present: present + PRODUCER_BLOCK)
    return range(end - PRODUCER_BLOCK, end)


async def cluster_id(store: Store, runtime: Runtime) -> str:
    """Chosen once, by whoever asks first."""
    fresh = urlsafe_b64encode(runtime.new_id().bytes).rstrip(b"=").decode()
    [outcome] = await store.transact(
        [Transaction(_CLUSTER.shard, {_CLUSTER.key: ABSENT}, {_CLUSTER.key: codec.encode(fresh, _CLUSTER)})]
    )
    if isinstance(outcome, Applied):
        return fresh
    entry = outcome.current[_CLUSTER.key]
    assert entry is not None
    return codec.decode(entry.value, str, _CLUSTER)


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
