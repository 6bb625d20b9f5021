"""The metadata store's rows, saved into the bucket now and then: what neither WAL nor tables tell.

`lakestream/metadata/<cluster id>/<number>.rows` holds the rows of topics, groups, names, pointers and counters as they
are stored (each value has its own format and checksum), and of each log its head and producers. Extents are left out:
WAL objects tell them. Leases, brokers and what the pipeline tells of itself die with the processes. Rows are read shard
by shard (`rows`), so a saved state is of no single moment; whoever recovers takes it for a hint.

The file: zlib of a MessagePack array (format, time in ms, rows), then CRC32C of that as four bytes, little endian.
"""

import asyncio
import logging
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from lakestream.bucket.rows import LEASE, Row, SavedRows
from lakestream.errors import Conflict, CorruptObject, LakestreamError
from lakestream.metadata.counters import known_cluster
from lakestream.metadata.store import Address, Store
from lakestream.objects import ObjectStore
from lakestream.records import crc32c
from lakestream.runtime import Runtime

_log = logging.getLogger(__name__)

FORMAT: Final = 1
SAVED: Final = "lakestream/metadata/"
KEPT: Final = 3
_LAST_S: Final = 3.0
_WRITER: Final = Address("saved", LEASE)
_CHECKSUM_BYTES: Final = 4


class Saved(msgspec.Struct, frozen=True, array_like=True):
    format: int
    saved_ms: int
    rows: list[Row]


def encode(saved: Saved) -> bytes:
    body = zlib.compress(msgspec.msgpack.encode(saved), 1)
    return body + crc32c(body).to_bytes(_CHECKSUM_BYTES, "little")


def decode(data: bytes, name: str) -> Saved:
    """Raises `CorruptObject`."""
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if crc32c(body).to_bytes(_CHECKSUM_BYTES, "little") != checksum:
        raise CorruptObject(f"{name} is damaged: its checksum does not hold")
    try:
        plain = zlib.decompress(body)
        [form, *_] = msgspec.msgpack.decode(plain)
        if form != FORMAT:
            raise CorruptObject(f"{name} has format {form}: use the version of lakestream that wrote it")
        return msgspec.msgpack.decode(plain, type=Saved)
    except (zlib.error, msgspec.DecodeError, ValueError) as error:
        raise CorruptObject(f"{name} does not decode: {error}") from error


async def saved_keys(objects: ObjectStore, cluster: str) -> list[str]:
    """The oldest first."""
    return [info.key async for info in objects.list(f"{SAVED}{cluster}")]


@asynccontextmanager
async def saving(store: Store, objects: ObjectStore, runtime: Runtime, interval_ms: int) -> AsyncIterator[None]:
    """Rows are saved while this is entered, and once more at its end."""
    saver = Saver(store, objects, runtime)
    task = asyncio.create_task(saver.run(interval_ms), name="save rows")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
        try:
            await asyncio.wait_for(saver.save(), _LAST_S)
        except (LakestreamError, TimeoutError) as error:
            _log.warning("the metadata store's rows could not be saved into the bucket at the end: %s", error)


class Saver:
    """Saves what has changed, at its pace, while it lives. Any number may run: a lease lets one of them work."""

    def __init__(self, store: Store, objects: ObjectStore, runtime: Runtime) -> None:
        self._store = store
        self._objects = objects
        self._runtime = runtime
        self._name = f"saver-{runtime.new_id()}"
        self._rows = SavedRows(store, runtime)

    async def run(self, interval_ms: int) -> None:
        while True:
            try:
                lease = await self._store.acquire_lease(_WRITER, self._name, ttl_ms=2 * interval_ms)
                if lease.holder == self._name:
                    await self.save()
            except LakestreamError as error:
                _log.warning("the metadata store's rows could not be saved into the bucket this time: %s", error)
            await asyncio.sleep(interval_ms / 1000)

    async def save(self) -> None:
        """Nothing if nothing has changed since this process saved. Older ones go when the new one is there."""
        cluster = await known_cluster(self._store)
        if not await self._rows.refresh() or cluster is None:
            return
        present = await saved_keys(self._objects, cluster)
        number = 1 + max((_number(key) for key in present), default=0)
        key = f"{SAVED}{cluster}/{number:012d}.rows"
        data = encode(Saved(FORMAT, self._runtime.clock.now_ms(), self._rows.rows()))
        try:
            await self._objects.put(key, [data])
        except Conflict:
            # Another process saves, which is as good.
            return
        self._rows.saved()
        await self._objects.delete(_old([*present, key]))


def _number(key: str) -> int:
    text = key.rsplit("/", 1)[-1].partition(".")[0]
    return int(text) if text.isdigit() else 0


def _old(keys: Sequence[str]) -> list[str]:
    return sorted(keys)[:-KEPT]


async def load_saved(objects: ObjectStore, cluster: str) -> tuple[Saved | None, list[str]]:
    """The newest that is whole, and what is wrong with newer ones."""
    damaged: list[str] = []
    for key in reversed(await saved_keys(objects, cluster)):
        try:
            return decode(await objects.get(key), f"{objects.url}/{key}"), damaged
        except CorruptObject as error:
            damaged.append(str(error))
    return None, damaged
