"""Tables: PyIceberg and Arrow. Importing this costs as much as all else in a broker, which leaves it to `late`."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.catalog.external.client import CatalogClient
from lakestream.catalog.external.served import ServedViews
from lakestream.catalog.external.tables import ExternalCommits
from lakestream.catalog.port import TableViews
from lakestream.catalog.rules.records import RowJudge
from lakestream.metadata.topics.list import Topics
from lakestream.node.backends import Backends
from lakestream.table.allocator import keep_decoded_memory
from lakestream.table.reading.history import HistoryReader
from lakestream.table.rewriting.checking import RowChecker


def make_catalog(backends: Backends) -> PyIcebergTables:
    """Raises `RequestError` if an external catalog's settings cannot be used; it is not asked anything yet."""
    store, url, runtime = backends.store, backends.objects.url, backends.runtime
    properties = io_properties(os.environ)
    if not backends.external_catalog:
        judge = RowJudge(RowChecker(backends.objects), Topics(store, runtime))
        return PyIcebergTables(store, url, runtime, io_properties=properties, judge=judge)
    client = CatalogClient(backends.external_catalog, properties)
    return PyIcebergTables(store, url, runtime, commits=ExternalCommits(store, runtime, properties, client, url))


def make_views(catalog: PyIcebergTables) -> TableViews:
    """What a broker serves."""
    if isinstance(catalog.commits, ExternalCommits):
        return ServedViews(catalog, catalog.commits)
    return catalog


def external_place(catalog: PyIcebergTables) -> str:
    """Where the tables are if not in the metadata store, for people; else empty."""
    return catalog.commits.place if isinstance(catalog.commits, ExternalCommits) else ""


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
    return HistoryReader(backends.objects, cache_bytes=cache_bytes)


@asynccontextmanager
async def open_catalog(backends: Backends) -> AsyncIterator[PyIcebergTables]:
    catalog = make_catalog(backends)
    try:
        yield catalog
    finally:
        await catalog.close()
