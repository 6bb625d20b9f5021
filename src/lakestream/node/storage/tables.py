"""Tables: PyIceberg and Arrow. Importing this costs as much as all else in a broker, which leaves it to `lazy`."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from lakestream.catalog.embedded.commit import Commits
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.catalog.engines.tables import EngineTables
from lakestream.catalog.engines.unplaced import TakeRows
from lakestream.catalog.external.client import CatalogClient
from lakestream.catalog.external.tables import ExternalTables
from lakestream.catalog.port import OpenCatalog
from lakestream.catalog.rules.records import RowJudge
from lakestream.metadata.topics.list import Topics
from lakestream.node.storage.backends import Backends
from lakestream.schemas.checking import check_values
from lakestream.schemas.codecs import install as install_codecs
from lakestream.table.allocator import keep_decoded_memory
from lakestream.table.reading.history import HistoryReader
from lakestream.table.rewriting.checking import RowChecker

__all__ = ["check_values", "io_properties", "make_catalog", "make_engines", "make_history", "open_catalog"]


def make_catalog(backends: Backends) -> OpenCatalog:
    """Raises `RequestError` if an external catalog's settings cannot be used; it is not asked anything yet."""
    install_codecs()
    store, url, runtime = backends.store, backends.objects.url, backends.runtime
    properties = io_properties(os.environ)
    if not backends.external_catalog:
        return PyIcebergTables(store, url, runtime, io_properties=properties)
    return ExternalTables(store, url, runtime, CatalogClient(backends.external_catalog, properties), properties)


def make_engines(
    backends: Backends, catalog: OpenCatalog, locations: Sequence[str] = (), rows: TakeRows | None = None
) -> EngineTables:
    """The tables that the metadata store points to, as outside engines use them; the catalog's files are theirs.
    `rows` takes those that are inserted."""
    judge = RowJudge(RowChecker(backends.objects), Topics(backends.store, backends.runtime))
    return EngineTables(Commits(backends.store, catalog.commits.stager, judge), backends.objects.url, locations, rows)


def io_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """What PyIceberg has to be told of S3, which our own store takes from the environment: both then use one."""
    names = {
        "s3.endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        "s3.access-key-id": ("AWS_ACCESS_KEY_ID",),
        "s3.secret-access-key": ("AWS_SECRET_ACCESS_KEY",),
        "s3.session-token": ("AWS_SESSION_TOKEN",),
        "s3.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    }
    found = {
        name: next((environment[each] for each in given if environment.get(each)), "") for name, given in names.items()
    }
    return {name: value for name, value in found.items() if value}


def make_history(backends: Backends, cache_bytes: int) -> HistoryReader:
    keep_decoded_memory()
    install_codecs()
    return HistoryReader(backends.objects, cache_bytes=cache_bytes)


@asynccontextmanager
async def open_catalog(backends: Backends) -> AsyncIterator[OpenCatalog]:
    catalog = make_catalog(backends)
    try:
        yield catalog
    finally:
        await catalog.close()
