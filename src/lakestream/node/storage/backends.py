"""Metadata store and bucket by their URLs, checked against each other."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry

from lakestream import metadata, objects
from lakestream.bucket.identity import check_identity
from lakestream.bucket.saved import saving
from lakestream.errors import RequestError, StoreRefused, Unavailable
from lakestream.metadata.store import Store
from lakestream.metrics import ObjectMetrics, new_registry
from lakestream.node.storage.disks import open_wal
from lakestream.objects import ObjectStore
from lakestream.runtime import Runtime, system
from lakestream.schemas.settings import SchemaSettings
from lakestream.settings import Settings
from lakestream.wal import WalStores

log = logging.getLogger(__name__)

OPEN_ATTEMPTS: Final = 40
OPEN_RETRY_MS: Final = 500
BUCKET_ATTEMPTS: Final = 5
"""Each of them takes some seconds: requests to a bucket are repeated before they fail."""
PROBE: Final = "lakestream/probe"
"""Written at each start, to see whether we may."""
_LOCAL: Final = ("file://", "memory://")


@dataclass(frozen=True, slots=True)
class Backends:
    """`registry` has what this process counts."""

    store: Store
    objects: ObjectStore
    runtime: Runtime
    wal: WalStores
    """The bucket, and the disk stores."""
    external_catalog: str = ""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    schemas: SchemaSettings = field(default_factory=SchemaSettings)


@asynccontextmanager
async def open_backends(settings: Settings) -> AsyncIterator[Backends]:
    """Raises `RequestError` if a URL or a directory cannot be used, or if metadata store and bucket do not belong
    together or were moved: nothing of either has been used then."""
    async with open_unchecked(settings) as backends:
        await _check_bucket(settings, backends)
        yield backends


async def _check_bucket(settings: Settings, backends: Backends) -> None:
    """It may be out of reach for a moment while we start: it is waited for, as the metadata store is."""
    for is_last in (*[False] * (BUCKET_ATTEMPTS - 1), True):
        try:
            await _check_rights(backends.objects)
            await check_identity(backends.store, backends.objects, backends.runtime, metadata_place(settings))
            return
        except Unavailable as error:
            if is_last:
                raise
            log.warning("waiting for the bucket: %s", error)
        await asyncio.sleep(OPEN_RETRY_MS / 1000)


def saving_rows(settings: Settings, backends: Backends) -> AbstractAsyncContextManager[None]:
    """What `lakestream recover` needs is saved into the bucket while this is entered."""
    return saving(backends.store, backends.objects, backends.runtime, settings.metadata_save_ms)


@asynccontextmanager
async def open_unchecked(settings: Settings) -> AsyncIterator[Backends]:
    """For what mends a bucket that `open_backends` refuses, and for nothing else."""
    registry = new_registry()
    bucket = objects.open(settings.bucket, metrics=ObjectMetrics(registry))
    store = await _open_store(settings.metadata)
    try:
        wal = open_wal(settings, store, bucket)
        yield Backends(store, bucket, system(), wal, settings.external_catalog, registry, settings.schemas)
    finally:
        await store.close()


async def _check_rights(bucket: ObjectStore) -> None:
    """A bucket that is not there, or that we may not list or write, is told before anything relies on it."""
    if bucket.url.startswith(_LOCAL):
        return
    try:
        async for _ in bucket.list(PROBE):
            break
        await bucket.put(PROBE, [b""], overwrite=True)
    except StoreRefused as error:
        raise RequestError(str(error)) from error


async def _open_store(url: str) -> Store:
    """A server may be restarting while we start: it is waited for."""
    for _ in range(OPEN_ATTEMPTS - 1):
        try:
            return await metadata.open(url)
        except Unavailable as error:
            log.warning("waiting for the metadata store: %s", error)
        await asyncio.sleep(OPEN_RETRY_MS / 1000)
    return await metadata.open(url)


def metadata_place(settings: Settings) -> str:
    """Where the metadata store is, if that is a file: then a second one is a copy."""
    return metadata.place_of(settings.metadata)
