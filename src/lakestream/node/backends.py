"""Concrete backends by URL. Only this module and `tables` name them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from lakestream import objects
from lakestream.errors import RequestError
from lakestream.metadata.sqlite import open_sqlite
from lakestream.metadata.store import Store
from lakestream.objects import ObjectStore
from lakestream.runtime import Runtime, system
from lakestream.settings import Settings


@dataclass(frozen=True, slots=True)
class Backends:
    store: Store
    objects: ObjectStore
    runtime: Runtime
    external_catalog: str = ""


@asynccontextmanager
async def open_backends(settings: Settings) -> AsyncIterator[Backends]:
    """Raises `RequestError` if a URL or a directory cannot be used."""
    runtime = system()
    store = await open_metadata(settings.metadata)
    try:
        yield Backends(store, objects.open(settings.bucket), runtime, settings.external_catalog)
    finally:
        await store.close()


async def open_metadata(url: str) -> Store:
    parts = urlsplit(url)
    if parts.scheme != "sqlite" or parts.netloc or not parts.path.startswith("/"):
        raise RequestError(f"{url!r} is no metadata store: use sqlite:///absolute/path")
    path = Path(parts.path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"the metadata directory {path.parent} cannot be used: {error.strerror}") from error
    return await open_sqlite(str(path))
