"""A metadata store by its URL. A further backend is one folder beside this file and one case here."""

from pathlib import Path
from urllib.parse import urlsplit

from lakestream.errors import RequestError
from lakestream.metadata.store import Store
from lakestream.metadata.stores.oxia.client.address import SCHEME as OXIA
from lakestream.metadata.stores.oxia.client.client import open_oxia
from lakestream.metadata.stores.postgres.connecting import SCHEMES
from lakestream.metadata.stores.postgres.store import open_postgres
from lakestream.metadata.stores.sqlite.store import open_sqlite
from lakestream.runtime import system


async def open(url: str) -> Store:
    """sqlite:///absolute/path, postgres://user:password@host/database or oxia://host:port/namespace. Raises
    `RequestError` if it cannot be used, `Unavailable` if its server does not answer. Belongs to the running event
    loop."""
    if urlsplit(url).scheme == OXIA:
        return await open_oxia(url, system())
    if urlsplit(url).scheme in SCHEMES:
        return await open_postgres(url)
    path = _sqlite_path(url)
    if path is None:
        # A URL may hold a password: it is not repeated.
        raise RequestError(
            f"metadata_url, which begins with {urlsplit(url).scheme}:, names no metadata store: use"
            " sqlite:///absolute/path, postgres://user@host/database or oxia://host:port/namespace"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"the metadata directory {path.parent} cannot be used: {error.strerror}") from error
    return await open_sqlite(str(path))


def place_of(url: str) -> str:
    """Where the store is, if it is a file: then a second one is a copy. Empty: it is a server's."""
    path = _sqlite_path(url)
    return "" if path is None else f"sqlite://{path.resolve()}"


def _sqlite_path(url: str) -> Path | None:
    parts = urlsplit(url)
    is_sqlite = parts.scheme == "sqlite" and not parts.netloc and parts.path.startswith("/")
    return Path(parts.path) if is_sqlite else None
