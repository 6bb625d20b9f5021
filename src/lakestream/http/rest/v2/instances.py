"""The consumers of version 2 that live at this door: each a member of its group like any other, over the Kafka door.

An instance is its maker's alone, is known by group and name, and ends when nobody has used it for a while. What it
reads ahead is bounded. The client library's calls that wait for a broker run in threads; handing out what it has read
waits for nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from lakestream.access import Principal
from lakestream.errors import Overloaded
from lakestream.http.rest.errors import BAD_REQUEST, RestError
from lakestream.metrics import RestMetrics

_log = logging.getLogger(__name__)

_IDLE_S: Final = 300.0
_SWEEP_S: Final = 5.0
_INSTANCES_MOST: Final = 500
_READ_AHEAD_KB: Final = 2_048
_AT_ONCE: Final = 500
_LOOK_S: Final = 0.01
_LOOK_MOST_S: Final = 0.1
_BROKER_S: Final = 30.0
_STOP_S: Final = 3.0
_NOT_FOUND: Final = 40403
_EXISTS: Final = 40902
_ILLEGAL_STATE: Final = 40903
_AWAY: Final = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._WAIT_COORD)
T = TypeVar("T")


class InstanceSettings(NamedTuple):
    form: str
    offset_reset: str
    auto_commit: bool
    min_bytes: int
    wait_ms: int


class ConsumerInstance:
    """One call at a time."""

    def __init__(self, principal: Principal, group: str, name: str, settings: InstanceSettings, brokers: str) -> None:
        self.principal = principal
        self.group = group
        self.name = name
        self.settings = settings
        self.lock = asyncio.Lock()
        self.used_s = asyncio.get_running_loop().time()
        self.topics: Sequence[str] = ()
        self.assigned: list[TopicPartition] = []
        self._waiting: list[Any] = []
        """Read, and not given to anybody yet."""
        self._given: dict[tuple[str, int], int] = {}
        """By topic and partition: what comes after all that was given."""
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": brokers,
                "group.id": group,
                "client.id": name,
                "auto.offset.reset": settings.offset_reset,
                "enable.auto.commit": settings.auto_commit,
                "enable.auto.offset.store": False,
                "isolation.level": "read_committed",
                "queued.max.messages.kbytes": _READ_AHEAD_KB,
                "fetch.max.bytes": _READ_AHEAD_KB * 1024,
                "max.partition.fetch.bytes": _READ_AHEAD_KB * 1024,
                "max.poll.interval.ms": int(_IDLE_S * 2000),
                "log_level": 0,
            }
        )

    def subscribe(self, topics: Sequence[str]) -> None:
        """Raises `RestError`. A pattern begins with ^."""
        if self.assigned:
            raise RestError(
                _ILLEGAL_STATE, "Illegal state: Subscription to topics and partitions are mutually exclusive"
            )
        self._forget()
        self._call(lambda: self._consumer.subscribe(list(topics)))
        self.topics = tuple(topics)

    def unsubscribe(self) -> None:
        self._forget()
        self._call(self._consumer.unsubscribe)
        self.topics = ()

    def assign(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Raises `RestError`."""
        if self.topics:
            raise RestError(
                _ILLEGAL_STATE, "Illegal state: Subscription to topics and partitions are mutually exclusive"
            )
        self._forget()
        self.assigned = self._call(lambda: [TopicPartition(*each) for each in partitions])
        self._call(lambda: self._consumer.assign(self.assigned))

    def assignment(self) -> list[tuple[str, int]]:
        return [(each.topic, each.partition) for each in self._call(self._consumer.assignment)]

    def seek(self, positions: Sequence[tuple[str, int, int]]) -> None:
        """Raises `RestError`."""
        assigned = set(self.assignment())
        for topic, partition, offset in positions:
            if (topic, partition) not in assigned:
                raise RestError(
                    _ILLEGAL_STATE, f"Illegal state: No current assignment for partition {topic}-{partition}"
                )
            self._waiting = [each for each in self._waiting if (each.topic(), each.partition()) != (topic, partition)]
            self._given.pop((topic, partition), None)
            self._call(partial(self._seek, topic, partition, offset))

    def _seek(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(topic, partition, offset))

    async def records(self, max_bytes: int, wait_ms: int) -> list[Any]:
        """What there is within the time, at most so many bytes and one record more. To be told to the instance as
        `given` when it was given to somebody."""
        if not self.topics and not self.assigned:
            raise RestError(
                _ILLEGAL_STATE, "Illegal state: Consumer is not subscribed to any topics or assigned any partitions"
            )
        loop = asyncio.get_running_loop()
        until_s, pause_s = loop.time() + wait_ms / 1000, _LOOK_S
        while True:
            came = [each for each in self._call(lambda: self._consumer.consume(_AT_ONCE, 0)) if _is_record(each)]
            self._waiting += came
            size_bytes = sum(map(_size, self._waiting))
            is_enough = size_bytes >= min(max(self.settings.min_bytes, 1), max_bytes)
            left_s = until_s - loop.time()
            if left_s <= 0 or (is_enough and not came) or size_bytes >= max_bytes:
                break
            if not came:
                await asyncio.sleep(min(pause_s, left_s))
                pause_s = min(pause_s * 1.5, _LOOK_MOST_S)
        found: list[Any] = []
        size_bytes = 0
        for each in self._waiting:
            if found and size_bytes + _size(each) > max_bytes:
                break
            found.append(each)
            size_bytes += _size(each)
        return found

    def given(self, records: Sequence[Any]) -> None:
        del self._waiting[: len(records)]
        for each in records:
            self._given[each.topic(), each.partition()] = each.offset() + 1
        behind = [TopicPartition(*place, offset) for place, offset in self._given.items()]
        if behind and self.settings.auto_commit:
            # What was given to somebody else meanwhile is theirs to commit.
            with suppress(KafkaException):
                self._consumer.store_offsets(offsets=behind)

    async def commit(self, offsets: Sequence[tuple[str, int, int]] | None) -> None:
        """None: behind all that was given."""
        wanted = [(*place, offset) for place, offset in self._given.items()] if offsets is None else offsets
        if wanted:
            partitions = self._call(lambda: [TopicPartition(*each) for each in wanted])
            await self._aside(lambda: self._consumer.commit(offsets=partitions, asynchronous=False))

    async def committed(self, partitions: Sequence[tuple[str, int]]) -> list[tuple[str, int, int, str]]:
        asked = self._call(lambda: [TopicPartition(*each) for each in partitions])
        found = await self._aside(lambda: self._consumer.committed(asked, timeout=_BROKER_S))
        return [(each.topic, each.partition, each.offset, each.metadata or "") for each in found if each.offset >= 0]

    async def close(self) -> None:
        with suppress(RestError):
            await self._aside(self._consumer.close)

    def _forget(self) -> None:
        self._waiting, self._given = [], {}

    def _call(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (ValueError, TypeError, OverflowError) as error:
            raise RestError(BAD_REQUEST, f"Kafka error: {error}") from error
        except (KafkaException, RuntimeError) as error:
            raise RestError(_code(error), f"Kafka error: {error}") from error

    async def _aside(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(self._call, work)


class Instances:
    def __init__(self, metrics: RestMetrics) -> None:
        self._metrics = metrics
        self._known: dict[tuple[str, str], ConsumerInstance] = {}
        self._sweeping: asyncio.Task[None] | None = None

    def make(
        self, principal: Principal, group: str, name: str, settings: InstanceSettings, brokers: str
    ) -> ConsumerInstance:
        """Raises `RestError`, `Overloaded`."""
        if (group, name) in self._known:
            raise RestError(
                _EXISTS, "Consumer with specified consumer ID already exists in the specified consumer group."
            )
        if len(self._known) >= _INSTANCES_MOST:
            raise Overloaded(f"{_INSTANCES_MOST} consumers live at this door: try again later, or at another")
        try:
            made = ConsumerInstance(principal, group, name, settings, brokers)
        except (KafkaException, ValueError, TypeError) as error:
            raise RestError(42204, f"Invalid consumer configuration: {error}") from error
        self._known[group, name] = made
        self._count()
        if self._sweeping is None:
            self._sweeping = asyncio.create_task(self._sweep())
        return made

    def find(self, principal: Principal, group: str, name: str) -> ConsumerInstance:
        """Raises `RestError`."""
        found = self._known.get((group, name))
        if found is None or found.principal != principal:
            raise RestError(_NOT_FOUND, "Consumer instance not found.")
        found.used_s = asyncio.get_running_loop().time()
        return found

    async def end(self, instance: ConsumerInstance) -> None:
        self._known.pop((instance.group, instance.name), None)
        self._count()
        async with instance.lock:
            await instance.close()

    async def stop(self) -> None:
        """All of them leave their groups."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        ending = [asyncio.ensure_future(self.end(each)) for each in list(self._known.values())]
        if ending:
            await asyncio.wait(ending, timeout=_STOP_S)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            idle_s = asyncio.get_running_loop().time() - _IDLE_S
            for each in [each for each in self._known.values() if each.used_s < idle_s and not each.lock.locked()]:
                _log.info("the consumer %s of group %s was not used for long: it ends", each.name, each.group)
                await self.end(each)

    def _count(self) -> None:
        self._metrics.consumers.set(len(self._known))


def _code(error: KafkaException | RuntimeError) -> int:
    """Whether somebody asked for what cannot be, or a broker could not be reached in time."""
    known = error.args[0] if error.args else None
    if not isinstance(known, KafkaError):
        return 50002
    if known.code() in (KafkaError._INVALID_ARG, KafkaError._UNKNOWN_PARTITION, KafkaError.INVALID_TOPIC_EXCEPTION):
        return BAD_REQUEST
    return 50003 if known.retriable() or known.code() in _AWAY else 50002


def _is_record(message: Any) -> bool:
    """What is none tells of the end of a partition, or of a broker that is away, which the library deals with."""
    return message.error() is None


def _size(message: Any) -> int:
    return len(message.key() or b"") + len(message.value() or b"")


BEGINNING: Final[int] = OFFSET_BEGINNING
END: Final[int] = OFFSET_END
