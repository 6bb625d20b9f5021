"""Where a broker's WAL objects go: the bucket, or a majority of the disk stores."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from lakestream.errors import LakestreamError, Unavailable
from lakestream.objects import Buffer, ObjectStore
from lakestream.wal.disks import DiskStore
from lakestream.wal.stores import MAIN_STORE

log = logging.getLogger(__name__)

PUT_S: Final = 10.0
"""A majority that takes longer has not taken the object: it is written again, under another name."""
_STRAGGLERS_MOST: Final = 6
"""Puts that one disk store may leave unanswered before it is passed by: each holds its object in memory."""


class WalWriter(Protocol):
    async def put(self, key: str, parts: Sequence[Buffer]) -> tuple[str, ...]:
        """Returns the stores that have the object, when so many have synced it that it may be acknowledged. Raises
        `RetryableError`: whether it lies anywhere is not known."""
        ...


class BucketWriter:
    """Implements `WalWriter`."""

    def __init__(self, bucket: ObjectStore) -> None:
        self._bucket = bucket

    async def put(self, key: str, parts: Sequence[Buffer]) -> tuple[str, ...]:
        await self._bucket.put(key, parts)
        return (MAIN_STORE,)


class MajorityWriter:
    """Implements `WalWriter`. All stores are written at once; a majority of those that are configured, whether they can
    be used or not, is enough. Those that are slower go on behind.

    A store counts only if it has its label *after* the last of the counted puts: whoever copies a lost store again
    lists the others after the loss, and so finds what counted here."""

    def __init__(self, configured: Callable[[], Sequence[DiskStore]]) -> None:
        self._configured = configured
        self._unanswered: dict[str, int] = {}
        self._behind: set[asyncio.Task[None]] = set()

    async def put(self, key: str, parts: Sequence[Buffer]) -> tuple[str, ...]:
        configured = self._configured()
        majority = len(configured) // 2 + 1
        troubles = [f"{disk.objects.url}: {disk.trouble}" for disk in configured if not disk.usable]
        asked = [disk for disk in configured if disk.usable and self._has_room(disk)]
        if len(asked) < majority:
            raise Unavailable(
                f"{len(asked)} of {len(configured)} disk stores can be written, {majority} are needed: "
                f"{'; '.join(troubles) or 'the others leave writes unanswered'}"
            )
        puts = [(disk, self._begin(disk, key, parts)) for disk in asked]
        labels = {disk.name: disk.label for disk in asked}
        deadline_s = asyncio.get_running_loop().time() + PUT_S
        while True:
            written = [disk for disk, task in puts if task.done() and not task.cancelled() and not task.exception()]
            if len(written) >= majority:
                whole = await asyncio.gather(*(_has_label(disk, labels[disk.name]) for disk in written))
                names = tuple(disk.name for disk, counts in zip(written, whole, strict=True) if counts)
                if len(names) >= majority:
                    return names
            waiting = [task for _, task in puts if not task.done()]
            if not waiting or len(waiting) + len(written) < majority:
                break
            left_s = deadline_s - asyncio.get_running_loop().time()
            done, _ = await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
        raise Unavailable(f"fewer than {majority} disk stores took {key}: {'; '.join(_said(puts)) or 'no answer'}")

    def _has_room(self, disk: DiskStore) -> bool:
        return self._unanswered.get(disk.name, 0) < _STRAGGLERS_MOST

    def _begin(self, disk: DiskStore, key: str, parts: Sequence[Buffer]) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(disk.objects.put(key, parts))
        self._unanswered[disk.name] = self._unanswered.get(disk.name, 0) + 1
        self._behind.add(task)

        def answered(task: "asyncio.Task[None]") -> None:
            self._behind.discard(task)
            self._unanswered[disk.name] -= 1
            error = None if task.cancelled() else task.exception()
            if isinstance(error, LakestreamError):
                log.warning("disk store %s did not take %s: %s", disk.objects.url, key, error)

        task.add_done_callback(answered)
        return task


async def _has_label(disk: DiskStore, label: str) -> bool:
    """Whether it is the store that it was when the put began."""
    return disk.label == label and await disk.is_whole()


def _said(puts: Sequence[tuple[DiskStore, "asyncio.Task[None]"]]) -> list[str]:
    return [
        f"{disk.objects.url}: {task.exception() if task.done() and not task.cancelled() else 'no answer'}"
        for disk, task in puts
        if not (task.done() and not task.cancelled() and task.exception() is None)
    ]
