"""The topic list. A topic is its UUID; the name only points at it.

Creating writes the heads first and the name last; deleting takes the name away first and
leaves a `gone` row until every later step is done: whoever finds it finishes the work.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from lakestream.errors import CorruptObject, InvalidName, InvalidPartitions, InvalidSetting, StreamExists, UnknownStream
from lakestream.metadata import codec
from lakestream.metadata.log.head import logs_of, partition_of
from lakestream.metadata.log.partition import create_head, delete_log, read_head
from lakestream.metadata.store import ABSENT, Address, Applied, Store, Transaction
from lakestream.metadata.topics.aliases import resolved
from lakestream.metadata.topics.option_list import FIXED_OPTIONS
from lakestream.metadata.topics.options import TopicOptions, check_settings, topic_options
from lakestream.model import StreamPartition
from lakestream.runtime import Runtime

K = TypeVar("K")

SHARD: Final = "topics"
_NAMES: Final = ("name/", "name0")
_GONE: Final = ("gone/", "gone0")
_LAST_DELETED: Final = Address(SHARD, "deleted")
"""Every delete writes it and every create checks it: a create that arrives once more, or late, after its topic or
a successor was deleted does not bring a dead id back."""
LAST_ALTERED: Final = Address(SHARD, "altered")
"""Every change of a topic's settings writes it: who keeps settings in a cache looks at it."""
_LAST_CREATED: Final = Address(SHARD, "created")
"""Every create writes it: while none of the three has a new version the list is what it was."""
_LIST_AGAIN_MS: Final = 600_000
"""The list is read at least this often whatever those rows say: another version may not have written them."""
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
MAX_PARTITIONS: Final = 10_000


class Topic(msgspec.Struct, frozen=True):
    name: str
    topic_id: UUID
    partitions: int
    configs: dict[str, str]
    created_ms: int

    @property
    def options(self) -> TopicOptions:
        return topic_options(self.configs)

    def each_partition(self) -> list[StreamPartition]:
        return [StreamPartition(self.topic_id, index) for index in range(self.partitions)]


def check_name(name: str) -> None:
    if not _LEGAL_NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidName(f"{name!r} is not a topic name: use 1 to 249 of a-z A-Z 0-9 . _ -")


class Begun(NamedTuple):
    """A table that a topic goes on in: the topic gets the table's UUID, and its log begins at the table's frontier."""

    table_id: UUID
    frontier: tuple[int, ...]


class _Listed(NamedTuple):
    """The list as it was when the rows that every change writes had these versions. `rows`: name → version, topic."""

    marks: tuple[int, ...]
    at_ms: int
    topics: Sequence[Topic]
    rows: Mapping[str, tuple[int, Topic]]


class Topics:
    """The list, with a cache for names and ids. What the cache says may be old; whoever is told `UnknownStream`
    by the log calls `forget`, and `follow`, called from time to time, drops settings that somebody else has changed."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._names: dict[str, Topic] = {}
        self._ids: dict[UUID, Topic] = {}
        self._versions: dict[str, int] = {}
        """Of the rows that names were last read from, where known: one that has not changed is not decoded again."""
        self._present_gone: asyncio.Future[Sequence[Topic]] | None = None
        self._next_gone: asyncio.Future[Sequence[Topic]] | None = None
        self._altered: int = ABSENT
        self._is_unsettled = False
        self._listed: _Listed | None = None

    def cached_name(self, name: str) -> Topic | None:
        return self._names.get(name)

    def cached_id(self, topic_id: UUID) -> Topic | None:
        return self._ids.get(topic_id)

    def forget(self, topic_id: UUID) -> None:
        topic = self._ids.pop(topic_id, None)
        if topic is not None and self._names.get(topic.name) is topic:
            del self._names[topic.name]
            self._versions.pop(topic.name, None)

    async def follow(self) -> None:
        """Forgets what it knows if the settings of a topic were changed since the last call, and once more with the
        next call: what was being read meanwhile may be remembered after the first time."""
        [entry] = await self._store.get([LAST_ALTERED])
        altered = ABSENT if entry is None else entry.version
        is_new = altered != self._altered
        if is_new or self._is_unsettled:
            self._is_unsettled = is_new
            self._altered = altered
            self._names.clear()
            self._ids.clear()
            self._versions.clear()

    async def list(self) -> Sequence[Topic]:
        """All topics, in order of their names; the same object as long as nothing has changed, so nobody changes it.
        One whose row is damaged is left out and logged: the others go on. Who needs to know that a topic does not exist
        asks for it by name or id."""
        known, now_ms = self._listed, self._runtime.clock.now_ms()
        # Before the rows: what changes after this is found by the next call.
        marks = tuple(
            ABSENT if entry is None else entry.version
            for entry in await self._store.get([_LAST_CREATED, _LAST_DELETED, LAST_ALTERED])
        )
        if known is not None and known.marks == marks and 0 <= now_ms - known.at_ms < _LIST_AGAIN_MS:
            return known.topics
        rows = await self._read_rows({} if known is None else known.rows)
        topics = [topic for _, topic in rows.values()]
        self._names.clear()
        self._ids.clear()
        self._versions.clear()
        for topic in topics:
            self.remember(topic)
        self._listed = _Listed(marks, now_ms, topics, rows)
        return topics

    async def _read_rows(self, known: Mapping[str, tuple[int, Topic]]) -> dict[str, tuple[int, Topic]]:
        """By name, in order. What has not changed is not decoded again."""
        rows: dict[str, tuple[int, Topic]] = {}
        for entry in await self._store.range(SHARD, *_NAMES):
            name = entry.key.removeprefix(_NAMES[0])
            row = known.get(name)
            if row is None or row[0] != entry.version:
                decoded = codec.decode_all([entry], Topic, SHARD)
                row = (entry.version, decoded[0]) if decoded else None
            if row is not None:
                rows[name] = row
        return rows

    async def by_names(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those that exist now. `CorruptObject` if the row of one is damaged."""
        return _whole(await self.find_names(names))

    async def by_ids(self, topic_ids: Iterable[UUID]) -> dict[UUID, Topic]:
        """Those that exist now. `CorruptObject` if a row of one is damaged."""
        return _whole(await self.find_ids(topic_ids))

    async def find_names(self, names: Iterable[str]) -> dict[str, Topic | CorruptObject]:
        """Those that exist now, or what is wrong with their rows."""
        wanted = list(names)
        entries = await self._store.get([Address(SHARD, f"name/{name}") for name in wanted])
        found: dict[str, Topic | CorruptObject] = {}
        for name, entry in zip(wanted, entries, strict=True):
            known = self._names.get(name)
            if known is not None:
                if entry is not None and self._versions.get(name) == entry.version:
                    found[name] = known
                    continue
                self.forget(known.topic_id)
            if entry is not None:
                try:
                    topic = codec.decode(entry.value, Topic, Address(SHARD, entry.key))
                except CorruptObject as error:
                    found[name] = error
                else:
                    found[name] = self.remember(topic)
                    self._versions[name] = entry.version
        return found

    async def find_ids(self, topic_ids: Iterable[UUID]) -> dict[UUID, Topic | CorruptObject]:
        """Those that exist now, or what is wrong with their rows."""
        wanted = list(topic_ids)
        entries = await self._store.get([Address(SHARD, f"id/{topic_id.hex}") for topic_id in wanted])
        found: dict[UUID, Topic | CorruptObject] = {}
        names: dict[UUID, str] = {}
        for topic_id, entry in zip(wanted, entries, strict=True):
            if entry is not None:
                try:
                    names[topic_id] = codec.decode(entry.value, str, Address(SHARD, entry.key))
                except CorruptObject as error:
                    found[topic_id] = error
        by_name = await self.find_names(names.values()) if names else {}
        for topic_id, name in names.items():
            named = by_name.get(name)
            # The name may belong to a successor by now.
            if isinstance(named, CorruptObject) or (named is not None and named.topic_id == topic_id):
                found[topic_id] = named
        for topic_id in wanted:
            if not isinstance(found.get(topic_id), Topic):
                self.forget(topic_id)
        return found

    async def create(self, name: str, partitions: int, configs: dict[str, str], *, begun: Begun | None = None) -> Topic:
        """Raises `StreamExists`, `InvalidStream`. A topic that is listed has all its heads. `begun`: it goes on in a
        table that is there; raises `InvalidSetting` if that table is or was the table of a topic of this cluster."""
        configs = resolved(configs, {})
        await self.check_new(name, partitions, configs, begun)
        topic_id = self._runtime.new_id() if begun is None else begun.table_id
        topic = Topic(name, topic_id, partitions, configs, self._runtime.clock.now_ms())
        starts = (0,) * partitions if begun is None else begun.frontier
        await asyncio.gather(
            *(create_head(self._store, *each) for each in zip(topic.each_partition(), starts, strict=True))
        )
        by_name, by_id = Address(SHARD, f"name/{name}"), Address(SHARD, f"id/{topic.topic_id.hex}")
        rows = {
            by_name.key: codec.encode(topic, by_name),
            by_id.key: codec.encode(name, by_id),
            _LAST_CREATED.key: codec.encode(topic_id, _LAST_CREATED),
        }
        if begun is not None:
            await self._check_begun(topic, begun)
        while True:
            [last] = await self._store.get([_LAST_DELETED])
            await self._close_logs_of_namesakes(name)
            checks = {by_name.key: ABSENT, _LAST_DELETED.key: ABSENT if last is None else last.version}
            if begun is not None:
                checks |= {by_id.key: ABSENT, _dead(topic_id).key: ABSENT}
            [outcome] = await self._store.transact([Transaction(SHARD, checks, rows)])
            if isinstance(outcome, Applied):
                return self.remember(topic)
            if by_name.key in outcome.current:
                if begun is None:
                    await self.drop_logs(topic)
                raise StreamExists(f"topic {name} already exists")
            if outcome.current.keys() & {by_id.key, _dead(topic_id).key}:
                raise _id_is_used(topic_id)

    async def _close_logs_of_namesakes(self, name: str) -> None:
        """The missing head is what tells a broker that its cached name is old: so a name is given again only when every
        log that it stood for is gone, also if whoever deleted the topic never came to that."""
        for topic in await self._gone_from_now():
            if topic.name == name:
                await self.drop_logs(topic)

    async def _gone_from_now(self) -> Sequence[Topic]:
        """As `gone`, read once for all who ask before the reading begins, and never before somebody asked."""
        if self._next_gone is None:
            self._next_gone = asyncio.ensure_future(self._read_gone(self._present_gone))
        return await asyncio.shield(self._next_gone)

    async def _read_gone(self, before: "asyncio.Future[Sequence[Topic]] | None") -> Sequence[Topic]:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._present_gone, self._next_gone = self._next_gone, None
        return await self.gone()

    async def check_new(
        self, name: str, partitions: int, configs: Mapping[str, str], begun: Begun | None = None
    ) -> None:
        """Raises what `create` would, as far as that can be known before. Changes nothing."""
        check_name(name)
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise InvalidPartitions(f"{name} cannot have {partitions} partitions: choose 1 to {MAX_PARTITIONS}")
        if await self.by_names([name]):
            raise StreamExists(f"topic {name} already exists")
        check_settings(resolved(configs, {}), {})
        if begun is not None:
            used = [Address(SHARD, f"id/{begun.table_id.hex}"), _dead(begun.table_id)]
            if any(entry is not None for entry in await self._store.get(used)):
                raise _id_is_used(begun.table_id)

    async def _check_begun(self, topic: Topic, begun: Begun) -> None:
        """The heads may be there from an attempt that came to nothing, which found the table at another point."""
        for partition, start in zip(topic.each_partition(), begun.frontier, strict=True):
            found = await read_head(self._store, partition)
            if found is None or (found.head.frontier, found.head.next_offset) != (start, start):
                raise InvalidSetting(f"table {topic.topic_id} is or was the table of another topic, or becomes one now")

    async def alter(
        self,
        name: str,
        change: Callable[[Mapping[str, str]], dict[str, str]],
        *,
        dry_run: bool = False,
        renames_table: bool = False,
    ) -> Topic:
        """Gives the topic the settings that `change` makes of its present ones, by compare-and-set: whoever loses a
        race computes anew. `renames_table`: its table has another name now, and the setting follows. Raises
        `UnknownStream`, `InvalidSetting`, and what `change` raises."""
        address = Address(SHARD, f"name/{name}")
        [entry] = await self._store.get([address])
        while entry is not None:
            topic = codec.decode(entry.value, Topic, address)
            configs = resolved(change(topic.configs), topic.configs)
            check_settings(configs, topic.configs)
            if not renames_table:
                _check_fixed(topic, configs)
            altered = msgspec.structs.replace(topic, configs=configs)
            if dry_run or configs == topic.configs:
                return altered
            rows = {
                address.key: codec.encode(altered, address),
                LAST_ALTERED.key: codec.encode(topic.topic_id, LAST_ALTERED),
            }
            [outcome] = await self._store.transact([Transaction(SHARD, {address.key: entry.version}, rows)])
            if isinstance(outcome, Applied):
                return self.remember(altered)
            entry = outcome.current.get(address.key)
        check_settings(resolved(change({}), {}), {})  # As in Kafka: what no topic can have is told first.
        raise UnknownStream(f"there is no topic {name}")

    async def delete(self, topic_id: UUID) -> Topic:
        """Takes the topic off the list; from now on it is `gone` and its name is free."""
        while True:
            # The id's row, before the name's: it is rewritten when the topic grows, and the name may already belong to
            # a successor.
            [row] = await self._store.get([Address(SHARD, f"id/{topic_id.hex}")])
            topic = (await self.by_ids([topic_id])).get(topic_id)
            self.forget(topic_id)
            if topic is None or row is None:
                raise UnknownStream(f"no topic has the id {topic_id}")
            gone = Address(SHARD, f"gone/{topic_id.hex}")
            taken = Transaction(
                SHARD,
                {row.key: row.version},
                {
                    gone.key: codec.encode(topic, gone),
                    _LAST_DELETED.key: codec.encode(topic_id, _LAST_DELETED),
                    _dead(topic_id).key: codec.encode(None, _dead(topic_id)),
                },
                deletes=[f"name/{topic.name}", row.key],
            )
            [outcome] = await self._store.transact([taken])
            if isinstance(outcome, Applied):
                return topic

    async def restore(self, topic: Topic) -> None:
        """Lists a topic that was found again, in a store that no process uses. Its name must be free."""
        by_name, by_id = Address(SHARD, f"name/{topic.name}"), Address(SHARD, f"id/{topic.topic_id.hex}")
        rows = {
            by_name.key: codec.encode(topic, by_name),
            by_id.key: codec.encode(topic.name, by_id),
            _LAST_CREATED.key: codec.encode(topic.topic_id, _LAST_CREATED),
        }
        await self._store.transact([Transaction(SHARD, {by_name.key: ABSENT}, rows)])
        self.remember(topic)

    async def gone(self) -> Sequence[Topic]:
        """Deleted topics whose remains are not cleared away yet, but for those whose row is damaged."""
        return codec.decode_all(await self._store.range(SHARD, *_GONE), Topic, SHARD)

    async def drop_logs(self, topic: Topic) -> None:
        """Those of its partitions, and of partitions that it was to get when somebody crashed."""
        begun = await self._store.shards(*logs_of(topic.topic_id))
        partitions = dict.fromkeys((*topic.each_partition(), *map(partition_of, begun)))
        await asyncio.gather(*(delete_log(self._store, partition) for partition in partitions))

    async def finish_delete(self, topic: Topic) -> None:
        """The last step of the chain, when logs and table are dealt with."""
        await self._store.transact([Transaction(SHARD, {}, {}, deletes=[f"gone/{topic.topic_id.hex}"])])

    def remember(self, topic: Topic) -> Topic:
        self._names[topic.name] = topic
        self._versions.pop(topic.name, None)
        self._ids[topic.topic_id] = topic
        return topic


def _dead(topic_id: UUID) -> Address:
    """There for ever once a topic was deleted: what is still under way against its log must not meet another's."""
    return Address(SHARD, f"dead/{topic_id.hex}")


def _id_is_used(topic_id: UUID) -> InvalidSetting:
    return InvalidSetting(
        f"table {topic_id} is or was the table of another topic of this cluster, and no other can have its id: make a"
        " topic with a table of its own, and copy the rows that you need"
    )


def _check_fixed(topic: Topic, configs: Mapping[str, str]) -> None:
    for name in FIXED_OPTIONS:
        if configs.get(name) != topic.configs.get(name):
            raise InvalidSetting(f"{name} of topic {topic.name} was settled when it was created and cannot change")


def _whole(found: dict[K, Topic | CorruptObject]) -> dict[K, Topic]:
    whole = {}
    for key, topic in found.items():
        if isinstance(topic, CorruptObject):
            raise topic
        whole[key] = topic
    return whole
