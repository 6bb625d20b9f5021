"""What brokers tell each other about disk stores."""

from support.fakes.disks import labelled

from lakestream.frontier.copying.keeping import DiskKeeper
from lakestream.frontier.settings import NO_DISKS
from lakestream.metadata.brokers import Broker, Brokers
from lakestream.metadata.disks import seen_disks, tell_seen
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.list import Topics
from lakestream.objects import MemoryObjects
from lakestream.runtime import system
from lakestream.wal import WalStores


async def test_what_a_broker_told_before_and_came_late_is_told_over_again() -> None:
    """Else the others believe for ever that a store which was lost is whole for it, and nobody copies it again."""
    [(disk, objects)] = await labelled(1)
    runtime, broker = system(), Broker(1, "h", 1, None, "one")
    store = MemoryStore(runtime)
    wal = WalStores(MemoryObjects(runtime.clock), [disk])
    keeper = DiskKeeper(broker, store, wal, Topics(store, runtime), Brokers(store), runtime, NO_DISKS)
    await keeper.look()
    [whole] = await seen_disks(store)
    assert whole.labels == {disk.name: disk.label}
    await objects.delete([info.key async for info in objects.list("")])
    await keeper.look()
    [lost] = await seen_disks(store)
    assert lost.labels == {disk.name: ""}
    await tell_seen(store, whole)
    await keeper.look()
    assert await seen_disks(store) == [lost]
