"""What is done to a bucket as a whole, while nothing else uses it."""

from lakestream.bucket.identity import Identity, read_identities, write_identity
from lakestream.bucket.recover import Recovered, recover
from lakestream.bucket.relocate import Place, Relocated, Tell, relocate
from lakestream.errors import RequestError
from lakestream.metadata.counters import cluster_id, known_cluster
from lakestream.node.storage.backends import Backends, metadata_place, open_unchecked
from lakestream.settings import Settings


async def relocate_bucket(settings: Settings, *, new_cluster: bool, old: str, tell: Tell) -> Relocated:
    """Raises `RequestError`, `StorageError`: whatever was done by then is found by the next run."""
    if settings.external_catalog:
        raise RequestError(
            "the tables are in an external catalog, which names their files by the old address: move them there"
        )
    async with open_unchecked(settings) as backends:
        return await relocate(_place(settings, backends), new_cluster=new_cluster, old=old, tell=tell)


async def recover_store(settings: Settings, *, cluster: str, tell: Tell) -> Recovered:
    """Raises `RequestError`, `StorageError`: a run that ends so begins anew the next time."""
    if settings.external_catalog:
        raise RequestError(
            "the tables are in an external catalog: restore the metadata store from a backup, it cannot be rebuilt"
        )
    async with open_unchecked(settings) as backends:
        place = metadata_place(settings)
        return await recover(
            backends.store,
            backends.objects,
            backends.runtime,
            place,
            cluster=cluster,
            disk_urls=settings.disk.urls,
            tell=tell,
        )


async def join_bucket(settings: Settings) -> str:
    """Begins another cluster in a bucket that has one; its id. Raises `RequestError`."""
    async with open_unchecked(settings) as backends:
        if not await read_identities(backends.objects):
            raise RequestError(f"the bucket {backends.objects.url} is no cluster's: just start lakestream on it")
        known = await known_cluster(backends.store)
        if known is not None:
            raise RequestError(f"the metadata store is that of cluster {known} already: use an empty one")
        known = await cluster_id(backends.store, backends.runtime)
        await write_identity(backends.objects, Identity(known, backends.objects.url, metadata_place(settings)))
        return known


async def read_bucket(settings: Settings) -> tuple[str | None, list[Identity]]:
    """What the metadata store and the bucket say of themselves."""
    async with open_unchecked(settings) as backends:
        found = await read_identities(backends.objects)
        return await known_cluster(backends.store), list(found.values())


def _place(settings: Settings, backends: Backends) -> Place:
    return Place(backends.store, backends.objects, backends.runtime, metadata_place(settings), backends.wal)
