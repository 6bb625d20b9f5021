"""Objects as files below a directory.

A put survives a power cut: the bytes are synced before the name appears, the
name before put returns. Names appear whole (a hard link to a finished file),
so readers and other processes never see a part of an object.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Final, TypeVar
from uuid import uuid4

from lakestream.errors import Conflict, CorruptObject, ObjectMissing, Unavailable
from lakestream.objects.keys import TEMPORARY_FOLDER, check_key, normal_prefix
from lakestream.objects.local.files import Files
from lakestream.objects.local.folders import DurableFolders, sync_folder
from lakestream.objects.local.shared_reads import SMALL_BYTES, SharedReads
from lakestream.objects.store import Buffer, ObjectInfo

T = TypeVar("T")

THREADS: Final = 8
LIST_PAGE: Final = 1000
LEFTOVER_AGE_S: Final = 3600
"""An unfinished file this old belongs to a process that died."""


class LocalObjects:
    """Implements `ObjectStore`. `root` is an absolute path; it is created by the first put."""

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)
        self._folders = DurableFolders(self._root)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="objects")
        self._small_reads = SharedReads(self._pool)
        self._files = Files()
        self._swept = False

    @property
    def url(self) -> str:
        return f"file://{self._root}"

    async def put(self, key: str, parts: Sequence[Buffer], *, overwrite: bool = False) -> None:
        path = self._path(key)
        await self._run(key, lambda: self._put(path, parts, overwrite))

    async def get(self, key: str) -> bytes:
        path = self._path(key)
        return await self._run(key, lambda: self._files.read(path, None, None))

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> bytes:
        path = self._path(key)
        data = await self._read(key, length, lambda: self._files.read(path, start, length, once=once))
        if len(data) != length:
            raise CorruptObject(f"{self.url}/{key} is too short for {length} bytes at {start}")
        return data

    async def get_tail(self, key: str, length: int) -> bytes:
        path = self._path(key)
        return await self._read(key, length, lambda: self._files.read(path, None, length))

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        prefix = normal_prefix(prefix)
        walk = _walk(self._root, prefix, after or "")
        while page := await self._run(prefix, lambda: [*islice(walk, LIST_PAGE)]):
            for info in page:
                yield info

    async def delete(self, keys: Sequence[str]) -> None:
        paths = [self._path(key) for key in keys]
        if paths:
            await self._run(keys[0], lambda: self._delete(paths))

    def _path(self, key: str) -> str:
        check_key(key)
        return f"{self._root}/{key}"

    async def _read(self, key: str, size_bytes: int, work: Callable[[], bytes]) -> bytes:
        if size_bytes > SMALL_BYTES:
            return await self._run(key, work)
        return await self._checked(key, self._small_reads.run(work))

    async def _run(self, key: str, work: Callable[[], T]) -> T:
        return await self._checked(key, asyncio.get_running_loop().run_in_executor(self._pool, work))

    async def _checked(self, key: str, done: Awaitable[T]) -> T:
        try:
            return await done
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise ObjectMissing(f"{self.url}/{key} does not exist") from error
        except FileExistsError as error:
            raise Conflict(f"{self.url}/{key} exists already") from error
        except OSError as error:
            raise Unavailable(f"{self.url}/{key}: the file system failed: {error}") from error

    def _put(self, path: str, parts: Sequence[Buffer], overwrite: bool) -> None:
        folder = os.path.dirname(path)
        temporary = f"{self._temporary_folder()}/{uuid4().hex}"
        try:
            self._files.create(temporary, parts)
            self._publish(temporary, path, folder, overwrite)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        sync_folder(folder)

    def _publish(self, temporary: str, path: str, folder: str, overwrite: bool) -> None:
        """Gives the finished file its name. The folder may vanish meanwhile: delete() removes empty ones."""
        while True:
            try:
                self._folders.ensure(folder)
                if overwrite:
                    os.replace(temporary, path)
                else:
                    os.link(temporary, path)
                return
            except FileNotFoundError:
                if not os.path.exists(temporary):
                    raise
            except (NotADirectoryError, IsADirectoryError) as error:
                # In a bucket `a` and `a/b` may both be objects; here one is a folder.
                raise FileExistsError(path) from error

    def _temporary_folder(self) -> str:
        folder = f"{self._root}/{TEMPORARY_FOLDER}"
        self._folders.ensure(folder)
        if not self._swept:
            self._swept = True
            _sweep(folder)
        return folder

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                os.unlink(path)
        for folder in {os.path.dirname(path) for path in paths}:
            self._prune(folder)

    def _prune(self, folder: str) -> None:
        """Removes folders that have become empty, up to the root."""
        while len(folder) > len(self._root):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                pass
            except OSError:
                return
            folder = os.path.dirname(folder)


def _walk(root: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
    """Keys below prefix ("" or "…/") in key order. A folder sorts as its name and a slash: so do its keys."""
    try:
        with os.scandir(f"{root}/{prefix}") as scan:
            entries = [(entry.name + "/" * entry.is_dir(), entry) for entry in scan]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, entry in sorted(entries, key=lambda pair: pair[0]):
        key = prefix + name
        if name.endswith("/"):
            skipped = key < after and not after.startswith(key)
            if not skipped and entry.name != TEMPORARY_FOLDER:
                yield from _walk(root, key, after)
        elif key > after:
            with suppress(FileNotFoundError):
                found = entry.stat()
                yield ObjectInfo(key, found.st_size, found.st_mtime_ns // 1_000_000)


def _sweep(folder: str) -> None:
    oldest = time.time() - LEFTOVER_AGE_S
    with os.scandir(folder) as scan:
        for entry in scan:
            with suppress(FileNotFoundError):
                if entry.stat().st_mtime < oldest:
                    os.unlink(entry.path)
