"""Objects in a cloud store (S3, GCS, Azure) through obstore, with one attempt at everything: `steady` makes the others.
obstore's own retries are off: ten of them are spent within three seconds of 503s, and hide from us that a store
throttles.

obstore's blocking calls run in a pool of threads. Its asynchronous ones deliver their results from
threads that Python does not know: a process that ends right after one aborts now and then, unless it ends with
`os._exit`. Whoever does reads large ranges with those: a blocking call is woken up for every piece of an answer, which
costs a third of a read's CPU time (measured: 0.7 ms a megabyte in ranges of 2 MB, against 0.5 ms).
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Literal, TypeVar
from urllib.parse import parse_qsl

import obstore
from obstore.exceptions import BaseError
from obstore.store import from_url

from lakestream.errors import CorruptObject, RequestError
from lakestream.objects.cloud.failures import is_answer, is_bucket_missing, status_of, told, words
from lakestream.objects.keys import check_key, normal_prefix
from lakestream.objects.store import Buffer, ObjectInfo

if TYPE_CHECKING:
    from obstore.store import S3Config

T = TypeVar("T")

THREADS: Final = 32
REQUEST_TIMEOUT: Final = timedelta(seconds=30)
CONNECT_TIMEOUT: Final = timedelta(seconds=5)
_ELSEWHERE: Final = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
_INTEGRITY: Final = ("AWS_UNSIGNED_PAYLOAD", "AWS_CHECKSUM_ALGORITHM")


class RemoteObjects:
    """Implements `ObjectStore`. Credentials and endpoints come from the environment (AWS_…, GOOGLE_…, AZURE_…). A put
    is one conditional request."""

    def __init__(
        self,
        url: str,
        *,
        request_timeout: timedelta = REQUEST_TIMEOUT,
        ends_at_once: bool = False,
    ) -> None:
        """`s3://bucket/prefix?endpoint=http://host:port` is at that server, whatever the environment says.
        `ends_at_once`: this process will never take its Python down, but end with `os._exit`."""
        self._url = url.rstrip("/")
        address, _, query = self._url.partition("?")
        endpoint = dict(parse_qsl(query)).get("endpoint")
        self._ends_at_once = ends_at_once
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="objects")
        try:
            self._store = from_url(
                address,
                config={"endpoint": endpoint} if endpoint else integrity(address, os.environ),
                # Plain HTTP is only ever used if the configured endpoint says so.
                client_options={
                    "timeout": request_timeout,
                    "connect_timeout": min(CONNECT_TIMEOUT, request_timeout),
                    "allow_http": True,
                },
                retry_config={"max_retries": 0},
            )
        except (BaseError, ValueError) as error:
            raise RequestError(f"{url} cannot be opened: {words(error)}") from error

    @property
    def url(self) -> str:
        return self._url

    async def put(self, key: str, parts: Sequence[Buffer], *, overwrite: bool = False) -> None:
        check_key(key)
        mode: Literal["overwrite", "create"] = "overwrite" if overwrite else "create"
        await self._run(key, lambda: obstore.put(self._store, key, parts, mode=mode, use_multipart=False))

    async def get(self, key: str) -> bytes:
        check_key(key)
        return await self._run(key, lambda: bytes(obstore.get(self._store, key).bytes()))

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> Buffer:
        check_key(key)
        # A view may keep more of the client's memory alive than it shows: it is only for those who let go of it soon.
        if once and length and self._ends_at_once:
            data = await self._large_range(key, start, length)
        else:
            data = await self._run(
                key, lambda: self._range(key, start, length) if once else bytes(self._range(key, start, length))
            )
        if len(data) != length:
            raise CorruptObject(f"{self._url}/{key} is too short for {length} bytes at {start}")
        return data

    async def get_tail(self, key: str, length: int) -> bytes:
        check_key(key)
        return await self._run(key, lambda: self._tail(key, length))

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        prefix = normal_prefix(prefix)
        pages = await self._run(prefix, lambda: obstore.list(self._store, prefix or None, offset=after))
        while page := await self._run(prefix, lambda: next(pages, None)):
            for info in page:
                if after is not None and info["path"] <= after:
                    continue  # a store that knows no beginning but the first
                yield ObjectInfo(info["path"], info["size"], int(info["last_modified"].timestamp() * 1000))

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        if keys:
            await self._run(keys[0], lambda: self._delete(list(keys)))

    async def _run(self, key: str, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except (FileNotFoundError, BaseError) as error:
            raise told(self._url, key, error) from error

    async def _large_range(self, key: str, start: int, length: int) -> Buffer:
        try:
            return memoryview(await obstore.get_range_async(self._store, key, start=start, length=length))
        except (FileNotFoundError, BaseError) as error:
            if not _unsatisfied(error):
                raise told(self._url, key, error) from error
        return await self._run(key, lambda: self._range(key, start, length))

    def _range(self, key: str, start: int, length: int) -> Buffer:
        """The bytes that there are, where the client has put them."""
        if length == 0:
            return b""
        try:
            return memoryview(obstore.get_range(self._store, key, start=start, length=length))
        except BaseError as error:
            # A range that begins beyond the end has no error of its own.
            if not _unsatisfied(error) or obstore.head(self._store, key)["size"] > start:
                raise
            return b""

    def _tail(self, key: str, length: int) -> bytes:
        try:
            return bytes(obstore.get(self._store, key, options={"range": {"suffix": length}}).bytes())
        except BaseError as error:
            if not _unsatisfied(error):
                raise
            # Azure knows no such ranges, and an empty object satisfies none.
            size_bytes = obstore.head(self._store, key)["size"]
            start = max(0, size_bytes - length)
            return bytes(self._range(key, start, size_bytes - start))

    def _delete(self, keys: Sequence[str]) -> None:
        try:
            obstore.delete(self._store, keys)
        except FileNotFoundError as error:
            if is_bucket_missing(error):
                raise
            # Some stores complain about missing objects, and stop: go on one by one.
            for key in keys:
                with suppress(FileNotFoundError):
                    obstore.delete(self._store, key)


def integrity(url: str, environment: Mapping[str, str]) -> "S3Config | None":
    """How S3 makes sure that it stores what was sent, unless the environment says how.

    At AWS a CRC-64 of the body, over TLS, as its own clients do: hashing the body for the signature costs three times
    as much as sending it. Other servers need not know that checksum, and plain HTTP needs the signature."""
    if not url.startswith("s3://") or any(name in environment for name in (*_ELSEWHERE, *_INTEGRITY)):
        return None
    return {"unsigned_payload": True, "checksum_algorithm": "crc64nvme"}


def _unsatisfied(error: Exception) -> bool:
    """Whether a range may have been what was wrong: the store says so, or the client did not even ask it."""
    return status_of(error) == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not is_answer(error)
