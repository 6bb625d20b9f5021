"""A bucket that was moved or copied becomes one of its own address.

Everything is prepared first: a copy that is not whole is refused before anything changes. Then each table's pointer is
swung to metadata that names files here, then views and namespaces, and the identity comes last: until then every start
is refused. Each step finds what an earlier run has done, so it may be killed anywhere and run again. Only the bucket
and the metadata store that it was given are touched.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from lakestream.bucket.identity import Identity, key_of, read_identities, write_identity
from lakestream.bucket.rehoming import Addresses, Rehoming
from lakestream.errors import RequestError
from lakestream.metadata.brokers import Brokers
from lakestream.metadata.counters import begin_cluster, former_clusters, known_cluster
from lakestream.metadata.disks import forget_disks
from lakestream.metadata.log.partition import read_every_extent
from lakestream.metadata.names.pointers import Pointer, Pointers
from lakestream.metadata.names.rows import Namespace
from lakestream.metadata.names.views import ViewPointer
from lakestream.metadata.store import Store
from lakestream.objects import ObjectStore
from lakestream.runtime import Runtime
from lakestream.wal import MAIN_STORE, WAL_PREFIX, WalStores

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Relocated:
    """`outside`: files that tables name and that were never in the bucket."""

    cluster_id: str
    old: str
    new: str
    tables: int
    views: int
    outside: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    store: Store
    objects: ObjectStore
    runtime: Runtime
    metadata: str
    """See `Identity`."""
    wal: WalStores | None = None
    """The bucket and the disk stores; None: there are none of these."""


async def relocate(place: Place, *, new_cluster: bool, old: str = "", tell: Tell) -> Relocated:
    """`old` is the former address where the bucket does not say it. Raises `RequestError`, `StorageError`."""
    known = await known_cluster(place.store)
    if known is None:
        raise RequestError("the metadata store is empty: copy it together with its bucket, or use `lakestream recover`")
    said = await _former_identity(place, known)
    here = Identity(known, place.objects.url, place.metadata)
    if said == here:
        raise RequestError(f"the bucket {here.bucket} is where it was, and so is its metadata: there is nothing to do")
    addresses = Addresses(old or (said.bucket if said else here.bucket), here.bucket)
    _check_apart(addresses)
    await _check_quiet(place.store)
    if new_cluster:
        await _check_disks(place.store)
    tables = views = 0
    outside: set[str] = set()
    if addresses.old != addresses.new:
        await _check_whole(place)
        tables, views, outside = await _rewrite(place, addresses, tell)
    if new_cluster and (said is None or said.cluster_id == known):
        await forget_disks(place.store)
        known = await begin_cluster(place.store, place.runtime)
    await write_identity(place.objects, Identity(known, here.bucket, here.metadata), overwrite=True)
    if said is not None and said.cluster_id != known:
        await place.objects.delete([key_of(said.cluster_id)])
    return Relocated(known, addresses.old, addresses.new, tables, views, tuple(sorted(outside)))


async def _former_identity(place: Place, known: str) -> Identity | None:
    identities = await read_identities(place.objects)
    for cluster in (known, *await former_clusters(place.store)):
        if cluster in identities:
            return identities[cluster]
    if identities:
        raise RequestError(
            f"the metadata store is that of cluster {known}, and the bucket {place.objects.url} belongs to others:"
            " give both of one cluster"
        )
    return None


def _check_apart(addresses: Addresses) -> None:
    old, new = addresses.old, addresses.new
    if old != new and (old.startswith(f"{new}/") or new.startswith(f"{old}/")):
        raise RequestError(f"{new} and {old} lie in each other: move the bucket to a place of its own first")
    if old != new and all(urlsplit(each).scheme == "file" for each in (old, new)):
        paths = urlsplit(old).path, urlsplit(new).path
        if all(map(os.path.exists, paths)) and os.path.samefile(*paths):
            raise RequestError(f"{new} is the same directory as {old}: start lakestream with that address")


async def _check_quiet(store: Store) -> None:
    brokers = Brokers(store)
    if await brokers.sessions():
        living = await brokers.live()
        names = ", ".join(f"{each.host}:{each.port}" for each in living) or "an HTTP door, or one that is being stopped"
        raise RequestError(
            f"brokers live on this metadata store, or did when it was copied ({names}): stop them, or wait until their"
            " leases end, in a few seconds"
        )


async def _check_disks(store: Store) -> None:
    """Disk stores are not copied: they stay those of the cluster that was copied, with what is in them."""
    async for partition, extent in read_every_extent(store):
        if any(name != MAIN_STORE for name in extent.stores):
            raise RequestError(
                f"records of topic {partition.topic_id} are in disk stores, those of the cluster that was copied:"
                " copy it again when its pipeline has moved them into their tables"
            )


async def _check_whole(place: Place) -> None:
    """That the bucket has what the log names. What tables name is looked up as it is rewritten."""
    wal = place.wal or WalStores(place.objects)
    await wal.refresh()
    present = {info.key async for info in wal.list(WAL_PREFIX)}
    async for partition, extent in read_every_extent(place.store):
        if extent.object_key and extent.object_key not in present:
            raise RequestError(
                f"{place.objects.url}/{extent.object_key} is missing, which holds offset {extent.base_offset} of"
                f" partition {partition.index} of topic {partition.topic_id}: this copy is not whole. Copy it again"
                " from a cluster that is stopped"
            )


async def _rewrite(place: Place, addresses: Addresses, tell: Tell) -> tuple[int, int, set[str]]:
    pointers = Pointers(place.store)
    await pointers.finish_drops()
    waiting = [(table_id, row) async for table_id, row in pointers.every()]
    here = f"{addresses.new}/"
    outside: set[str] = set()
    # All files first: whatever is missing is found while every pointer is as it was.
    moved = []
    for number, (table_id, row) in enumerate(waiting, 1):
        location = row.pointer.metadata_location
        if not location.startswith(here) and addresses.key(location) is not None:
            tell(f"table {number} of {len(waiting)}")
            work = Rehoming(place.objects, addresses)
            moved.append((table_id, row, await work.table(location), work))
            outside |= work.outside
        elif not location.startswith(here):
            outside.add(location)
    for table_id, row, location, _ in moved:
        await pointers.swing(table_id, row.version, Pointer(location, row.pointer.bound))
    views = await _move_views(place, pointers, addresses)
    await _move_namespaces(pointers, (), addresses)
    written = {key for *_, work in moved for key in work.written}
    await place.objects.delete(sorted({key for *_, work in moved for key in work.replaced} - written))
    return len(moved), views, outside


async def _move_views(place: Place, pointers: Pointers, addresses: Addresses) -> int:
    count = 0
    for name, row in await pointers.views.every():
        location = row.pointer.metadata_location
        if addresses.key(location) is not None:
            work = Rehoming(place.objects, addresses)
            pointer = ViewPointer(row.pointer.view_id, await work.view(location))
            await pointers.views.swing(name, row.version, pointer)
            await place.objects.delete(sorted(work.replaced - work.written))
            count += 1
    return count


async def _move_namespaces(pointers: Pointers, parent: Namespace, addresses: Addresses) -> None:
    for namespace in await pointers.namespaces(parent):
        properties = await pointers.namespace(namespace)
        moved = {name: addresses.moved(value) for name, value in properties.items()}
        changed = {name: value for name, value in moved.items() if value != properties[name]}
        if changed:
            await pointers.set_properties(namespace, changed, [])
        await _move_namespaces(pointers, namespace, addresses)
