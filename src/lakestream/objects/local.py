"""Objects as files below a directory.

A put survives a power cut: the bytes are synced before the name appears, the
name before put returns. Names appear whole (a hard link to a finished file),
so readers and other processes never see a part of an object.
"""

import asyncio
import itertools
import os
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import Final, ParamSpec, TypeVar
from uuid import uuid4

from lakestream.errors import Conflict, CorruptObject, ObjectMissing, Unavailable
from lakestream.objects.keys import TEMPORARY_FOLDER, check_key, normal_prefix
from lakestream.objects.store import Buffer, ObjectInfo

P = ParamSpec("P")
T = TypeVar("T")

THREADS: Final = 8
LIST_PAGE: Final = 1000
LEFTOVER_AGE_S: Final = 3600
"""An unfinished file this old belongs to a process that died."""
IOVECS: Final = 1024
KNOWN_FOLDERS: Final = 64


class LocalObjects:
    """Implements `ObjectStore`. `root` is an absolute path; it is created by the first put."""

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)
        self._folders = _DurableFolders(self._root)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="objects")
        self._swept = False

    @property
    def url(self) -> str:
        return f"file://{self._root}"

    async def put(self, key: str, parts: Sequence[Buffer], *, overwrite: bool = False) -> None:
        path = self._path(key)
        await self._run(self._put, path, parts, overwrite)

    async def get(self, key: str) -> bytes:
        return await self._run(_read, self._path(key), None, None)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        data = await self._run(_read, self._path(key), start, length)
        if len(data) != length:
            raise CorruptObject(f"{self.url}/{key} is too short for {length} bytes at {start}")
        return data

    async def get_tail(self, key: str, length: int) -> bytes:
        return await self._run(_read, self._path(key), None, length)

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        walk = _walk(self._root, normal_prefix(prefix), after or "")
        while page := await self._run(lambda: list(itertools.islice(walk, LIST_PAGE))):
            for info in page:
                yield info

    async def delete(self, keys: Sequence[str]) -> None:
        paths = [self._path(key) for key in keys]
        await self._run(self._delete, paths)

    def _path(self, key: str) -> str:
        check_key(key)
        return f"{self._root}/{key}"

    async def _run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, lambda: work(*args, **kwargs))
        except FileNotFoundError as error:
            raise ObjectMissing(f"file://{error.filename} does not exist") from error
        except FileExistsError as error:
            raise Conflict(f"file://{error.filename2} exists already") from error
        except OSError as error:
            raise Unavailable(f"the store {self.url} failed: {error}") from error

    def _put(self, path: str, parts: Sequence[Buffer], overwrite: bool) -> None:
        folder = os.path.dirname(path)
        temporary = self._temporary()
        try:
            with open(temporary, "xb", buffering=0) as file:
                _write_all(file.fileno(), parts)
                os.fsync(file.fileno())
            self._publish(temporary, path, folder, overwrite)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        _sync_folder(folder)

    def _publish(self, temporary: str, path: str, folder: str, overwrite: bool) -> None:
        """Gives the finished file its name. The folder may vanish meanwhile: delete() removes empty ones."""
        while True:
            self._folders.ensure(folder)
            try:
                if overwrite:
                    os.replace(temporary, path)
                else:
                    os.link(temporary, path)
                return
            except FileNotFoundError:
                if os.path.isdir(folder):
                    raise

    def _temporary(self) -> str:
        folder = f"{self._root}/{TEMPORARY_FOLDER}"
        if not self._swept:
            os.makedirs(folder, exist_ok=True)
            _sweep(folder)
            self._swept = True
        return f"{folder}/{uuid4().hex}"

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError, NotADirectoryError):
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


class _DurableFolders:
    """Folders whose names are known to be on disk, all the way up.

    Another process may have made a folder and not synced it yet, so the first use of every
    folder syncs its chain. An open descriptor proves later that a path still is that folder:
    as long as it is open the inode number is not given to another.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = Lock()
        self._known: OrderedDict[str, int] = OrderedDict()

    def ensure(self, folder: str) -> None:
        with self._lock:
            descriptor = self._known.get(folder)
            if descriptor is not None:
                if _same_folder(descriptor, folder):
                    self._known.move_to_end(folder)
                    return
                os.close(self._known.pop(folder))
        os.makedirs(folder, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        parent = folder
        while len(parent) > 1:
            parent = os.path.dirname(parent)
            _sync_folder(parent)
            if len(parent) < len(self._root):
                break
        with self._lock:
            if folder in self._known:
                os.close(descriptor)
                return
            self._known[folder] = descriptor
            if len(self._known) > KNOWN_FOLDERS:
                os.close(self._known.popitem(last=False)[1])


def _same_folder(descriptor: int, folder: str) -> bool:
    try:
        found = os.stat(folder)
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, parts: Sequence[Buffer]) -> None:
    pending = [memoryview(part) for part in parts if len(part)]
    first = 0
    while first < len(pending):
        written = os.writev(descriptor, pending[first : first + IOVECS])
        while first < len(pending) and written >= len(pending[first]):
            written -= len(pending[first])
            first += 1
        if written:
            pending[first] = pending[first][written:]


def _read(path: str, start: int | None, length: int | None) -> bytes:
    """`length` bytes from `start`; without start the last ones; without both everything."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size_bytes = os.fstat(descriptor).st_size
        if length is None:
            start, length = 0, size_bytes
        elif start is None:
            start = max(0, size_bytes - length)
        end = min(start + length, size_bytes)
        chunks = []
        while start < end:
            chunk = os.pread(descriptor, end - start, start)
            if not chunk:
                break
            chunks.append(chunk)
            start += len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    finally:
        os.close(descriptor)


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
