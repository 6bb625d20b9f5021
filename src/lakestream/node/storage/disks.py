"""The disk stores of a cluster, by the URLs that the settings and the metadata store name."""

from collections.abc import Sequence

from lakestream import objects
from lakestream.errors import RequestError
from lakestream.metadata.counters import known_cluster
from lakestream.metadata.disks import disk_rows
from lakestream.metadata.store import Store
from lakestream.objects import ObjectStore
from lakestream.settings import Settings
from lakestream.wal import NamedDisk, WalStores


def open_wal(settings: Settings, store: Store, bucket: ObjectStore) -> WalStores:
    """Where WAL objects may lie. Disk stores are opened when they are first needed. Raises `RequestError` for a list of
    them that cannot be."""
    _check(settings.disk.urls, bucket.url)
    return WalStores(bucket, load=lambda: _load(store), open_store=objects.open)


def _check(urls: Sequence[str], bucket: str) -> None:
    opened = [objects.open(url).url for url in urls]
    for number, url in enumerate(opened):
        if url in opened[:number] or url == bucket:
            raise RequestError(
                f"disk store {url} is {'the bucket' if url == bucket else 'named twice'}: each must be a store of its"
                " own, or its loss is the loss of several"
            )


async def _load(store: Store) -> list[NamedDisk]:
    """All that were ever named."""
    rows = await disk_rows(store)
    cluster = await known_cluster(store) or "" if rows else ""
    return [NamedDisk(row.name, row.url, cluster, row.label) for row in rows]
