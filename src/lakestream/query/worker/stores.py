"""The object stores that a query's process has opened, for all of its queries."""

from functools import lru_cache

from lakestream import objects
from lakestream.frontier.moving.tiles.tile import Tile
from lakestream.objects import ObjectStore
from lakestream.wal import DiskStore, WalStores


@lru_cache(maxsize=16)
def open_store(url: str) -> ObjectStore:
    """A process runs many queries: its connections are worth keeping."""
    return objects.open(url)


def wal_of(tile: Tile) -> WalStores:
    disks = [DiskStore(each.name, open_store(each.url), each.cluster, each.label) for each in tile.disks]
    return WalStores(open_store(tile.bucket), disks)
