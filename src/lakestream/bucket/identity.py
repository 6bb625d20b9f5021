"""Whose a bucket is: an object in it for each cluster that uses it, `lakestream/clusters/<cluster id>.json`.

Tables name their files by full addresses, so a copy of a bucket would read, write and delete in the original. Every
process therefore compares, before it does anything, what the bucket says (cluster id, address, metadata store) with
what it was started on. What does not agree is refused with a sentence that names the command which mends it.

The metadata store gets its cluster id first, the bucket its object second: a bucket that names a cluster which
the store does not know has lost its store, and must not begin a second life.
"""

import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from lakestream.errors import Conflict, ObjectMissing, RequestError
from lakestream.metadata.counters import cluster_id, known_cluster
from lakestream.metadata.log.head import EXTENTS
from lakestream.metadata.names.pointers import Pointers
from lakestream.metadata.store import Store
from lakestream.objects import ObjectStore
from lakestream.records import crc32c
from lakestream.runtime import Runtime

_log = logging.getLogger(__name__)

CLUSTERS: Final = "lakestream/clusters/"
FORMAT: Final = 1
_RELOCATE: Final = "lakestream bucket relocate"


class Identity(msgspec.Struct, frozen=True):
    """`bucket` and `metadata`: where both are, as processes are told. `metadata` is empty unless it is a file."""

    cluster_id: str
    bucket: str
    metadata: str


class _Stored(msgspec.Struct, frozen=True):
    format: int
    identity: Identity
    checksum: int


def encode(identity: Identity) -> bytes:
    return msgspec.json.format(msgspec.json.encode(_Stored(FORMAT, identity, _checksum(identity)))) + b"\n"


def decode(data: bytes, name: str) -> Identity:
    """Raises `RequestError`: a start on it would be wrong however often it is tried."""
    cure = (
        "if this bucket was never moved or copied, delete that object, and the next start writes it again;"
        f" otherwise delete it and run `{_RELOCATE}`"
    )
    try:
        stored = msgspec.json.decode(data, type=_Stored)
    except msgspec.DecodeError as error:
        raise RequestError(f"{name}, which says whose this bucket is, is damaged ({error}): {cure}") from error
    if stored.format != FORMAT:
        raise RequestError(
            f"{name} has format {stored.format}, and this version of lakestream reads {FORMAT}: use the one"
            " that wrote it"
        )
    if stored.checksum != _checksum(stored.identity):
        raise RequestError(f"{name}, which says whose this bucket is, is damaged: {cure}")
    return stored.identity


def _checksum(identity: Identity) -> int:
    return crc32c(msgspec.msgpack.encode(identity))


def key_of(cluster: str) -> str:
    return f"{CLUSTERS}{cluster}.json"


async def read_identities(objects: ObjectStore) -> dict[str, Identity]:
    """Of all clusters that use the bucket, by their ids."""
    found = {}
    async for info in objects.list(CLUSTERS):
        try:
            identity = decode(await objects.get(info.key), f"{objects.url}/{info.key}")
        except ObjectMissing:
            continue
        if info.key != key_of(identity.cluster_id):
            raise RequestError(f"{objects.url}/{info.key} is the identity of cluster {identity.cluster_id}: delete it")
        found[identity.cluster_id] = identity
    return found


async def write_identity(objects: ObjectStore, identity: Identity, *, overwrite: bool = False) -> None:
    try:
        await objects.put(key_of(identity.cluster_id), [encode(identity)], overwrite=overwrite)
    except Conflict:
        # Another process of this cluster begins at the same moment.
        _check_place(await read_identities(objects), identity)


async def check_identity(store: Store, objects: ObjectStore, runtime: Runtime, metadata: str) -> str:
    """The cluster's id, when store and bucket belong together and are where they were. A new bucket gets an identity,
    and so does that of an earlier version if it is plain that it was never moved. Raises `RequestError`."""
    # In this order: the store learns of its cluster before the bucket does.
    identities = await read_identities(objects)
    known = await known_cluster(store)
    if known is None:
        await _check_new(store, objects, identities)
        known = await cluster_id(store, runtime)
    here = Identity(known, objects.url, metadata)
    if known in identities:
        _check_place(identities, here)
        return known
    if identities:
        raise RequestError(
            f"the metadata store is that of cluster {known}, and the bucket {objects.url} belongs to"
            f" {_names(identities)}: give both of one cluster, or finish what was begun with `{_RELOCATE}`"
        )
    await _check_never_moved(store, objects)
    await write_identity(objects, here)
    _log.info("bucket %s is now that of cluster %s", objects.url, known)
    return known


def _check_place(identities: dict[str, Identity], here: Identity) -> None:
    said = identities.get(here.cluster_id)
    if said is None:
        raise RequestError(
            f"the identity of cluster {here.cluster_id} was taken from the bucket {here.bucket} just now"
        )
    if said.bucket != here.bucket:
        raise RequestError(
            f"the bucket {here.bucket} is a copy of {said.bucket}, or was moved from there, and its tables still name"
            f" files under the old address: run `{_RELOCATE}` if it takes the place of the other, or `{_RELOCATE}"
            " --new-cluster` if both are to live"
        )
    if said.metadata and here.metadata and said.metadata != here.metadata:
        raise RequestError(
            f"the bucket {here.bucket} has its metadata in {said.metadata}, and not in {here.metadata}: start it with"
            f" the former, or run `{_RELOCATE}` if that was moved"
        )


async def _check_new(store: Store, objects: ObjectStore, identities: dict[str, Identity]) -> None:
    """Of a metadata store in which no cluster has ever lived, unless one has begun to this moment."""
    used = _names(identities) if identities else "a cluster" if await holds_data(objects) else ""
    if used and await known_cluster(store) is None:
        raise RequestError(
            f"the bucket {objects.url} holds the data of {used}, and the metadata store is empty: restore that from a"
            " backup or rebuild it with `lakestream recover`; `lakestream bucket join` begins another cluster here"
        )


async def _check_never_moved(store: Store, objects: ObjectStore) -> None:
    """Of a store that has lived, on a bucket that does not say whose it is."""
    here = f"{objects.url}/"
    places = [row.pointer.metadata_location async for _, row in Pointers(store).every()]
    elsewhere = next((place for place in places if not place.startswith(here)), None)
    if elsewhere is not None:
        raise RequestError(
            f"the bucket {objects.url} does not say whose it is, and a table names {elsewhere}: this is a copy or was"
            f" moved. Run `{_RELOCATE} --from <old address>`, with --new-cluster if the original lives on"
        )
    if not await holds_data(objects) and (places or await _has_extents(store)):
        raise RequestError(
            f"the metadata store knows records that should be in the bucket {objects.url}, which is empty: is it the"
            " right one?"
        )


async def holds_data(objects: ObjectStore) -> bool:
    for prefix in ("wal/", "tables/"):
        async for _ in objects.list(prefix):
            return True
    return False


async def _has_extents(store: Store) -> bool:
    for shard in await store.shards("log/", "log0"):
        if await store.range(shard, *EXTENTS, limit=1):
            return True
    return False


def _names(identities: Iterable[str]) -> str:
    return f"cluster {' and '.join(sorted(identities))}"
