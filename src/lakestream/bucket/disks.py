"""The disk stores of a cluster whose metadata store was lost, for whoever rebuilds the log from what lies in them."""

from collections.abc import Sequence

from lakestream import objects
from lakestream.errors import StorageError
from lakestream.metadata.disks import disk_rows, name_disks
from lakestream.metadata.store import Store
from lakestream.objects import ObjectStore
from lakestream.wal import DiskStore, WalStores


async def open_disks(
    store: Store, bucket: ObjectStore, cluster: str, urls: Sequence[str]
) -> tuple[WalStores, list[str]]:
    """Those that saved rows tell of, and those at these URLs; sentences about one that is not whole. What was
    acknowledged is in a majority, so the others have what a single one had. Raises `StorageError` if more are gone."""
    await name_disks(store, urls)
    disks = [DiskStore(row.name, objects.open(row.url), cluster, row.label) for row in await disk_rows(store)]
    lost = [disk for disk in disks if disk.label and not await disk.is_whole()]
    if len(lost) > 1 or len(lost) == len(disks) > 0:
        raise StorageError(
            f"the disk stores {', '.join(disk.objects.url for disk in lost)} cannot be read or lost what they had:"
            " acknowledged records may be there only. Bring them back, all but one"
        )
    notes = [f"disk store {disk.objects.url} is not whole: the others tell what it had" for disk in lost]
    return WalStores(bucket, disks), notes
