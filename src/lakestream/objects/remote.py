"""Objects in a cloud store (S3, GCS, Azure) through obstore."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, Literal

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url

from lakestream.errors import Conflict, CorruptObject, ObjectMissing, Unavailable
from lakestream.objects.keys import check_key, normal_prefix
from lakestream.objects.store import Buffer, ObjectInfo

REQUEST_TIMEOUT: Final = timedelta(seconds=30)
RETRY_TIMEOUT: Final = timedelta(seconds=60)


class RemoteObjects:
    """Implements `ObjectStore`. Credentials and endpoints come from the environment (AWS_…, GOOGLE_…, AZURE_…).

    A put is one conditional request. Its client repeats it when the connection breaks, so
    a `Conflict` may mean the caller's own object: names that are never reused make that harmless.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._store: Any = from_url(
            self._url,
            client_options={"timeout": REQUEST_TIMEOUT},
            retry_config={"retry_timeout": RETRY_TIMEOUT},
        )

    @property
    def url(self) -> str:
        return self._url

    async def put(self, key: str, parts: Sequence[Buffer], *, overwrite: bool = False) -> None:
        mode: Literal["overwrite", "create"] = "overwrite" if overwrite else "create"
        with self._errors(key):
            await obstore.put_async(self._store, key, parts, mode=mode, use_multipart=False)

    async def get(self, key: str) -> bytes:
        with self._errors(key):
            found = await obstore.get_async(self._store, key)
            return bytes(await found.bytes_async())

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        if length == 0:
            return b""
        with self._errors(key):
            data = bytes(await obstore.get_range_async(self._store, key, start=start, length=length))
        if len(data) != length:
            raise CorruptObject(f"{self._url}/{key} is too short for {length} bytes at {start}")
        return data

    async def get_tail(self, key: str, length: int) -> bytes:
        with self._errors(key):
            found = await obstore.get_async(self._store, key, options={"range": {"suffix": length}})
            return bytes(await found.bytes_async())

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        prefix = normal_prefix(prefix)
        with self._errors(prefix or "x"):
            async for page in obstore.list(self._store, prefix or None, offset=after):
                for info in page:
                    yield ObjectInfo(info["path"], info["size"], int(info["last_modified"].timestamp() * 1000))

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        with self._errors(keys[0]):
            await obstore.delete_async(self._store, list(keys))

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise ObjectMissing(f"{self._url}/{key} does not exist") from error
        except AlreadyExistsError as error:
            raise Conflict(f"{self._url}/{key} exists already") from error
        except BaseError as error:
            raise Unavailable(f"{self._url}/{key}: the object store did not answer: {error}") from error
