"""A lost metadata store, rebuilt from the bucket alone.

Topics, groups, names, pointers and counters come from the rows that were saved last (`saved`), tables from their newest
metadata, logs from WAL objects and their receipts (`rebuilding`), schemas and their subjects from objects of their own.
Offsets of what is in a table or has a receipt are those that it had. Nothing in the bucket changes but the place of the
metadata store in its identity.

The store gets its cluster's id last: until then every start is refused, and a run that was cut off begins anew.
All generations that were ever seen are below the new fence, so nothing of the old life can still commit.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import msgspec

from lakestream.bucket.disks import open_disks
from lakestream.bucket.found import FoundTable, FoundWal, Tell, find_tables, find_wal
from lakestream.bucket.identity import Identity, holds_data, read_identities, write_identity
from lakestream.bucket.rebuilding import Rebuilt, rebuild
from lakestream.bucket.rows import Row
from lakestream.bucket.saved import load_saved
from lakestream.errors import RequestError, StorageError, TableExists
from lakestream.metadata import codec, counters
from lakestream.metadata.groups.model import GROUPS, PENDING
from lakestream.metadata.log.head import HEAD, Head, ProducerState, extent_key, partition_of, producer_key, shard_of
from lakestream.metadata.names.pointers import Pointer, Pointers
from lakestream.metadata.names.views import ViewPointer
from lakestream.metadata.store import Address, Store, Transaction
from lakestream.metadata.topics.growing import grow
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.metadata.topics.tables import clashing_name, table_name
from lakestream.model import StreamPartition
from lakestream.objects import ObjectStore
from lakestream.runtime import Runtime
from lakestream.schemas.registry.storage.restoring import restore_registry
from lakestream.wal import WAL_PREFIX, WalStores, parse_key

_ALL: Final = ("", "\U0010ffff")
_MARK: Final = Address("recovering", "begun")
_LOGS: Final = "log/"
_TRANSACTIONS: Final = ("txn/", "open-txn/")
_TABLES: Final = "table/"
_PUTS_MOST: Final = 500
_GENERATIONS: Final = 2
"""How far above all that were seen the new generation is."""


@dataclass(slots=True)
class Recovered:
    """`notes`: what could not be known, as sentences."""

    cluster_id: str = ""
    topics: int = 0
    partitions: int = 0
    tail_records: int = 0
    appended: int = 0
    left_out: int = 0
    subjects: int = 0
    saved_ms: int | None = None
    notes: list[str] = field(default_factory=list)


async def recover(
    store: Store,
    objects: ObjectStore,
    runtime: Runtime,
    metadata: str,
    *,
    cluster: str = "",
    disk_urls: Sequence[str] = (),
    tell: Tell,
) -> Recovered:
    """`disk_urls`: of disk stores, beside those that saved rows tell of. Raises `RequestError` if the store is not
    empty, `StorageError` if records that were in the log are gone."""
    await _check_empty(store, objects)
    identity = await _identity(objects, runtime, cluster)
    done = Recovered(identity.cluster_id)
    saved, damaged = await load_saved(objects, identity.cluster_id)
    done.notes += damaged
    rows = [] if saved is None else saved.rows
    done.saved_ms = None if saved is None else saved.saved_ms
    if saved is None:
        done.notes.append(
            "no saved rows were found: settings of topics, groups with their offsets, names of tables that no topic"
            " has, and where retention had moved the beginning of streams are not known"
        )
    work = _Recovery(store, objects, runtime, identity, done, rows, disk_urls, tell)
    await _put(store, [Row(*_MARK, codec.encode(None, _MARK))])
    await work.run()
    await write_identity(objects, msgspec.structs.replace(identity, metadata=metadata), overwrite=True)
    await counters.restore_cluster(store, identity.cluster_id)
    await store.transact([Transaction(_MARK.shard, {}, {}, deletes=[_MARK.key])])
    return done


async def _check_empty(store: Store, objects: ObjectStore) -> None:
    """A store in which a run was cut off is emptied."""
    shards = await store.shards(*_ALL)
    if not shards:
        # A cluster's bucket may be empty while all that it has is in disk stores.
        if not await read_identities(objects) and not await holds_data(objects):
            raise RequestError(f"the bucket {objects.url} holds no data: there is nothing to recover")
        return
    if await counters.known_cluster(store) is not None or _MARK.shard not in shards:
        raise RequestError(
            "the metadata store is not empty: it is only ever rebuilt from nothing. If it is damaged, move it away"
        )
    await store.transact([Transaction(shard, {}, {}, delete_ranges=[_ALL]) for shard in shards])


async def _identity(objects: ObjectStore, runtime: Runtime, cluster: str) -> Identity:
    identities = await read_identities(objects)
    if cluster:
        if cluster not in identities:
            raise RequestError(f"the bucket {objects.url} has no cluster {cluster}: it has {', '.join(identities)}")
        return identities[cluster]
    if len(identities) > 1:
        raise RequestError(
            f"several clusters use this bucket, say whose store it is: --cluster {', '.join(identities)}"
        )
    for identity in identities.values():
        return identity
    # A version that wrote no identity: WAL objects carry the cluster's id.
    async for info in objects.list(WAL_PREFIX):
        named = parse_key(info.key).session.partition("_")[2]
        if named:
            return Identity(named, objects.url, "")
    return Identity(counters.fresh_id(runtime), objects.url, "")


class _Recovery:
    def __init__(
        self,
        store: Store,
        objects: ObjectStore,
        runtime: Runtime,
        identity: Identity,
        done: Recovered,
        rows: Iterable[Row],
        disk_urls: Sequence[str],
        tell: Tell,
    ) -> None:
        self._store = store
        self._objects = objects
        self._disk_urls = disk_urls
        self._wal = WalStores(objects)
        self._topics = Topics(store, runtime)
        self._pointers = Pointers(store)
        self._address = identity.bucket
        self._cluster = identity.cluster_id
        self._done = done
        self._tell = tell
        self._heads: dict[StreamPartition, Head] = {}
        self._producers: dict[StreamPartition, dict[int, ProducerState]] = defaultdict(dict)
        self._dead: set[UUID] = set()
        self._transactional_ids: set[str] = set()
        self._pending: set[str] = set()
        self._rows = [row for row in rows if not self._take(row)]

    def _take(self, row: Row) -> bool:
        """Whether the row is not simply put back: logs are rebuilt, and the cluster's id comes last."""
        if row.shard == "topics" and row.key.startswith("dead/"):
            self._dead.add(UUID(row.key.removeprefix("dead/")))
        if row.shard.startswith(_TRANSACTIONS):
            # Their logs are rebuilt without ends: who was in the middle of one must not go on with it.
            self._transactional_ids.add(row.shard)
            return True
        if row.shard.startswith(GROUPS[0]) and row.key.startswith(PENDING[0]):
            self._pending.add(row.shard)
            return True
        if not row.shard.startswith(_LOGS):
            return row.shard == "cluster" and row.key == "id"
        partition, address = partition_of(row.shard), Address(row.shard, row.key)
        if row.key == HEAD:
            self._heads[partition] = codec.decode(row.value, Head, address)
        else:
            state = codec.decode(row.value, ProducerState, address)
            self._producers[partition][int(row.key.rpartition("/")[2], 16)] = state
        return True

    async def run(self) -> None:
        await _put(self._store, self._rows)
        self._note_coordination()
        former = await counters.former_clusters(self._store)
        self._wal, missing = await open_disks(self._store, self._objects, self._cluster, self._disk_urls)
        self._done.notes += missing
        wal = await find_wal(self._wal, (self._cluster, *former), self._tell)
        self._done.notes += [f"a WAL object is not readable: {each}" for each in wal.unreadable]
        self._tell(f"{wal.objects} WAL objects are read")
        tables = await find_tables(self._objects, self._tell)
        streams = await self._restore_tables(tables)
        topics = await self._restore_topics(streams, wal)
        generation = _GENERATIONS + max(
            wal.generation,
            await counters.current_generation(self._store),
            *(head.fence for head in self._heads.values()),
        )
        highest = -1
        for number, topic in enumerate(topics, 1):
            self._tell(f"topic {number} of {len(topics)}: {topic.name}")
            found = streams.get(topic.topic_id)
            for partition in topic.each_partition():
                rebuilt = await self._rebuild(
                    topic, partition, () if found is None else found.frontier, wal, generation
                )
                highest = max(highest, *rebuilt.producers, -1)
        await counters.restore_numbers(self._store, generation=generation, producer_id=highest)
        restored = await restore_registry(self._store, self._objects, (self._cluster, *former))
        self._done.subjects = restored.subjects
        self._done.notes += restored.notes
        self._done.topics = len(topics)

    def _note_coordination(self) -> None:
        count = sum(shard.startswith(_TRANSACTIONS[0]) for shard in self._transactional_ids)
        if count:
            self._done.notes.append(
                f"{count} transactional ids are forgotten, because how their transactions ended is not known: their"
                " producers have to be started again"
            )
        if self._pending:
            self._done.notes.append(
                f"{len(self._pending)} groups had offsets in transactions that were under way: these were not committed"
            )

    # Tables and views

    async def _restore_tables(self, tables: Mapping[str, FoundTable]) -> dict[UUID, FoundTable]:
        """Points at the newest metadata; the tables of streams, by the topic's id."""
        streams: dict[UUID, FoundTable] = {}
        known = {}
        async for table_id, row in self._pointers.every():
            folder = self._key(row.pointer.metadata_location).rpartition("/")[0]
            known[folder] = table_id
            found = tables.get(folder)
            if found is None:
                self._done.notes.append(
                    f"table {await self._pointers.name_of(table_id)} is gone, and so is its name now"
                )
                await self._pointers.drop(table_id)
                continue
            await self._pointers.swing(
                table_id, row.version, Pointer(f"{self._address}/{found.key}", row.pointer.bound)
            )
            if row.pointer.bound:
                streams[table_id] = found
        for name, view in await self._pointers.views.every():
            folder = self._key(view.pointer.metadata_location).rpartition("/")[0]
            known[folder] = view.pointer.view_id
            found = tables.get(folder)
            if found is not None:
                location = f"{self._address}/{found.key}"
                await self._pointers.views.swing(name, view.version, ViewPointer(view.pointer.view_id, location))
        for folder, found in tables.items():
            if folder in known:
                continue
            if found.topic_id is None or found.topic_id in self._dead or found.topic_id in streams:
                self._done.notes.append(
                    f"the table or view in {folder} has no name: register {found.key}, or delete it"
                )
            else:
                streams[found.topic_id] = found
        return streams

    def _key(self, location: str) -> str:
        return location.removeprefix(f"{self._address}/")

    # Topics and logs

    async def _restore_topics(self, streams: Mapping[UUID, FoundTable], wal: FoundWal) -> list[Topic]:
        listed = {topic.topic_id: topic for topic in await self._topics.list()}
        for topic_id, found in sorted(streams.items(), key=lambda each: -each[1].updated_ms):
            if topic_id not in listed:
                topic = await self._restore_topic(found.topic, topic_id, len(found.frontier), found.updated_ms)
                listed[topic_id] = topic
                self._done.notes.append(
                    f"topic {topic.name} was not among the saved rows: its settings are the defaults, and if it was"
                    " deleted in its last minute, delete it again"
                )
            topic = listed[topic_id]
            await self._bind(topic, found)
        unknown = {partition.topic_id for partition in wal.sections} - listed.keys() - self._dead
        for topic_id in sorted(unknown):
            count = 1 + max(partition.index for partition in wal.sections if partition.topic_id == topic_id)
            topic = await self._restore_topic(f"recovered-{topic_id.hex[:8]}", topic_id, count, 0)
            listed[topic_id] = topic
            self._done.notes.append(
                f"records of a topic that nothing else tells of are in {topic.name}: its name, its settings and the"
                " number of its partitions are not known. If it was deleted in its last minute, delete it again"
            )
        for topic_id, topic in listed.items():
            listed[topic_id] = await self._grown(topic, streams.get(topic_id), wal)
        return sorted(listed.values(), key=lambda topic: topic.name)

    async def _grown(self, topic: Topic, found: FoundTable | None, wal: FoundWal) -> Topic:
        """It may have got partitions after its row was saved: its table or the WAL has records of them."""
        written = (partition.index for partition in wal.sections if partition.topic_id == topic.topic_id)
        count = max(topic.partitions, 0 if found is None else len(found.frontier), 1 + max(written, default=-1))
        return topic if count == topic.partitions else await grow(self._store, self._topics, topic.name, count)

    async def _restore_topic(self, name: str, topic_id: UUID, partitions: int, created_ms: int) -> Topic:
        taken = await self._topics.by_names([name])
        if taken:
            name = f"{name}__{topic_id.hex[:8]}"
        topic = Topic(name, topic_id, partitions, {}, created_ms)
        await self._topics.restore(topic)
        return topic

    async def _bind(self, topic: Topic, found: FoundTable) -> None:
        """Pointer or name may be missing: the table was made while rows were saved, or later."""
        await self._pointers.add(topic.topic_id, Pointer(f"{self._address}/{found.key}", bound=True))
        wanted = table_name(topic.name, topic.options.table_name)
        try:
            await self._pointers.bind(topic.topic_id, wanted, make_namespace=True)
        except TableExists:
            await self._pointers.bind(topic.topic_id, clashing_name(wanted, topic.topic_id), make_namespace=True)

    async def _rebuild(
        self, topic: Topic, partition: StreamPartition, frontiers: tuple[int, ...], wal: FoundWal, generation: int
    ) -> Rebuilt:
        said = self._heads.get(partition, Head())
        frontier = frontiers[partition.index] if partition.index < len(frontiers) else 0
        rebuilt = await rebuild(
            partition,
            frontier,
            wal.sections.get(partition, ()),
            wal.fates.get(partition, {}),
            self._producers.get(partition, {}),
            self._wal.get_range,
            self._wal.places,
            said,
        )
        if rebuilt.next_offset < said.next_offset:
            raise StorageError(
                f"topic {topic.name}, partition {partition.index}: the log had {said.next_offset} records when its rows"
                f" were saved, and the bucket has {rebuilt.next_offset}: restore the bucket from a backup"
            )
        head = Head(
            next_offset=rebuilt.next_offset,
            log_start=min(said.log_start, rebuilt.next_offset),
            frontier=frontier,
            fence=generation,
            expired_producers=said.expired_producers,
        )
        values: dict[str, object] = {HEAD: head}
        values |= {extent_key(extent.end_offset): extent for extent in rebuilt.extents}
        values |= {producer_key(producer): state for producer, state in rebuilt.producers.items()}
        shard = shard_of(partition)
        await _put(
            self._store, [Row(shard, key, codec.encode(value, Address(shard, key))) for key, value in values.items()]
        )
        self._done.partitions += 1
        self._done.tail_records += rebuilt.next_offset - frontier
        self._note_transactions(topic, partition, rebuilt)
        self._done.appended += rebuilt.appended
        self._done.left_out += rebuilt.left_out
        return rebuilt

    def _note_transactions(self, topic: Topic, partition: StreamPartition, rebuilt: Rebuilt) -> None:
        where = f"topic {topic.name}, partition {partition.index}"
        if rebuilt.aborted:
            self._done.notes.append(
                f"{where}: {rebuilt.aborted_records} records of transactions of {rebuilt.aborted} producers are not in"
                " the table, and how the transactions ended is not known: they are aborted. Readers of uncommitted"
                " records see them until they are in no log any more"
            )
        if rebuilt.lost_markers:
            self._done.notes.append(
                f"{where}: no WAL object tells of {rebuilt.lost_markers} offsets, which will have been the ends of"
                " transactions"
            )


async def _put(store: Store, rows: Iterable[Row]) -> None:
    shards: dict[str, dict[str, bytes]] = defaultdict(dict)
    for row in rows:
        shards[row.shard][row.key] = row.value
    for shard, puts in shards.items():
        items = list(puts.items())
        for start in range(0, len(items), _PUTS_MOST):
            await store.transact([Transaction(shard, {}, dict(items[start : start + _PUTS_MOST]))])
