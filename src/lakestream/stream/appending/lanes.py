"""The lanes of a broker: one appender for each profile, each with a buffer, a pace, a session and a commit order of its
own, so that a slow bucket does not hold up what goes to disk stores.

A partition's appends are in one lane at a time. When its profile changes, what is under way in the old lane settles
before the next append enters the new one: the order of calls stays the order in the log.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from lakestream.metadata.log.enlistment import InTransaction
from lakestream.model import StreamPartition
from lakestream.objects.store import Buffer
from lakestream.records import BatchInfo
from lakestream.stream.appending.append import Appender
from lakestream.stream.appending.flush import Appended, Flush


class _Waiting(NamedTuple):
    """An append whose lane is not free for its partition yet."""

    disk: bool
    run: Buffer
    batch: BatchInfo | None
    transaction: InTransaction | None
    done: "asyncio.Future[Appended]"


@dataclass(slots=True)
class _Course:
    """Which lane a partition is in, and how many of its appends are under way there. `waiting` is for another lane, or
    behind what is."""

    disk: bool
    under_way: int = 0
    waiting: deque[_Waiting] = field(default_factory=deque)


class Lanes:
    """Without a disk lane everything goes to the bucket."""

    def __init__(self, bucket: Appender, disk: Appender | None = None) -> None:
        self._bucket = bucket
        self._disk = disk
        self._courses: dict[StreamPartition, _Course] = {}
        """Of the partitions of which something is under way or waits."""
        if disk is not None:
            # Told by flushes, not by the futures that callers got: those may be cancelled while records are under way.
            bucket.settled = disk.settled = self._settled

    @property
    def has_disk(self) -> bool:
        return self._disk is not None

    async def start(self, stopped: Callable[["asyncio.Task[None]"], None], cluster: str) -> None:
        for lane in self._lanes():
            await lane.start(stopped, cluster)

    async def stop(self) -> None:
        """What was taken in is committed and acknowledged, what waits for its lane, too."""
        while waiting := [each.done for course in self._courses.values() for each in course.waiting]:
            await asyncio.wait(waiting)
        for lane in self._lanes():
            await lane.stop()

    def append(
        self,
        partition: StreamPartition,
        run: Buffer,
        batch: BatchInfo | None = None,
        transaction: InTransaction | None = None,
        *,
        disk: bool = False,
    ) -> "asyncio.Future[Appended]":
        """As `Appender.append`."""
        if self._disk is None:
            return self._bucket.append(partition, run, batch, transaction)
        course = self._courses.get(partition)
        if course is None:
            course = self._courses[partition] = _Course(disk)
        if course.disk == disk and not course.waiting:
            appended = self._enter(partition, course, run, batch, transaction)
            if not course.under_way:
                del self._courses[partition]
            return appended
        done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        course.waiting.append(_Waiting(disk, run, batch, transaction, done))
        return done

    def _enter(
        self,
        partition: StreamPartition,
        course: _Course,
        run: Buffer,
        batch: BatchInfo | None,
        transaction: InTransaction | None,
    ) -> "asyncio.Future[Appended]":
        lane = self._disk if course.disk and self._disk is not None else self._bucket
        appended = lane.append(partition, run, batch, transaction)
        # One that was refused is in no flush.
        course.under_way += not appended.done()
        return appended

    def _settled(self, flush: Flush) -> None:
        for partition, appends in flush.appends.items():
            course = self._courses[partition]
            course.under_way -= len(appends)
            if not course.under_way:
                self._go_on(partition, course)

    def _go_on(self, partition: StreamPartition, course: _Course) -> None:
        """Nothing of the partition is under way: whatever waits may enter."""
        while course.waiting and not course.under_way:
            course.disk = course.waiting[0].disk
            while course.waiting and course.waiting[0].disk == course.disk:
                waited = course.waiting.popleft()
                appended = self._enter(partition, course, waited.run, waited.batch, waited.transaction)
                appended.add_done_callback(partial(_pass_on, waited.done))
        if not course.under_way:
            del self._courses[partition]

    def _lanes(self) -> list[Appender]:
        return [self._bucket] if self._disk is None else [self._bucket, self._disk]


def _pass_on(done: "asyncio.Future[Appended]", appended: "asyncio.Future[Appended]") -> None:
    if not done.done():
        error = appended.exception()
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(appended.result())
