"""Every value in the metadata store carries a checksum; damage is named, and concerns only what it is in."""

import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID
from zlib import crc32

import pytest
from support.clients.batches import batch

from lakestream.errors import CorruptObject, LakestreamError
from lakestream.metadata import codec
from lakestream.metadata.brokers import Broker, Brokers
from lakestream.metadata.counters import cluster_id, current_generation, raise_generation, reserve_producer_ids
from lakestream.metadata.groups import (
    CommittedOffset,
    GroupRows,
    GroupState,
    StoredMember,
    committed_offsets,
    lease_address,
)
from lakestream.metadata.log.commit import Batch, Offer
from lakestream.metadata.log.committer import Committed, Committer, Unreadable, Verdict
from lakestream.metadata.log.head import HEAD, Head, producer_key, shard_of
from lakestream.metadata.log.partition import read_extents, read_head
from lakestream.metadata.names.pointers import Pointer, Pointers, TableName
from lakestream.metadata.store import Address, Entry, Outcome, Store, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.stores.sqlite.store import open_sqlite
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import StreamPartition
from lakestream.runtime import system
from lakestream.stream.fetching.tails import Tails

BROKER = Broker(1, "localhost", 9092, None, "session")


def offer(partition: StreamPartition, flush: int = 1) -> Offer:
    laid = [Batch(0, len(batch(b"v")), 1, 0, 5, 0, flush - 1)]
    return Offer(partition, "session", flush, 1, ("main",), "wal/x", 0, laid, lambda start, end: 0)


async def fill(store: Store) -> Topic:
    """Something of every kind."""
    topics, committer = Topics(store, system()), Committer(store)
    topic = await topics.create("orders", 3, {})
    gone = await topics.create("gone", 1, {})
    await topics.delete(gone.topic_id)
    await topics.drop_logs(gone)
    for flush in (1, 2):
        await committer.commit([offer(partition, flush) for partition in topic.each_partition()], {})
    await Brokers(store).register(BROKER)
    lease = await store.acquire_lease(lease_address("g"), "session", ttl_ms=60_000)
    rows = GroupRows(store, "g", lease.token)
    await rows.load()
    await rows.save(GroupState(3, "consumer"), [StoredMember("m", None, "c", "h", 1, 1, (), b"")])
    await rows.commit({topic.each_partition()[0]: CommittedOffset(1, 0, "", 0)})
    await raise_generation(store, 1)
    await reserve_producer_ids(store)
    await cluster_id(store, system())
    pointers = Pointers(store)
    await pointers.add(topic.topic_id, Pointer("file:///x", bound=True))
    await pointers.bind(topic.topic_id, TableName(("default",), "orders"), make_namespace=True)
    await pointers.mark_leaving(topic.topic_id)
    return topic


async def look_at_all(store: Store, topic: Topic) -> None:
    """Reads whatever `fill` wrote; what may be left out of a list is asked for by its name too."""
    topics, pointers = Topics(store, system()), Pointers(store)
    await topics.list()
    await topics.by_ids([topic.topic_id])
    await topics.gone()
    for partition in topic.each_partition():
        await read_head(store, partition)
        await read_extents(store, partition)
    verdicts: dict[StreamPartition, Verdict] = {}
    await Committer(store).commit([offer(partition, 3) for partition in topic.each_partition()], verdicts)
    for verdict in verdicts.values():
        if isinstance(verdict, Unreadable):
            raise verdict.error
    await reserve_producer_ids(store)
    await Brokers(store).live()
    await committed_offsets(store, "g")
    lease = await store.acquire_lease(lease_address("g"), "session", ttl_ms=60_000)
    await GroupRows(store, "g", lease.token).load()
    await current_generation(store)
    await cluster_id(store, system())
    await pointers.get(topic.topic_id)
    name = await pointers.name_of(topic.topic_id)
    if name is not None:
        await pointers.resolve(name)
        await pointers.namespace(name.namespace)
    await store.leases("brokers", "", "~")


def all_entries(store: MemoryStore) -> list[tuple[Address, Entry]]:
    return [
        (Address(name, key), entry) for name, shard in store._shards.items() for key, entry in shard.entries.items()
    ]


async def damage(store: Store, address: Address) -> None:
    [entry] = await store.get([address])
    assert entry is not None
    await store.transact([Transaction(address.shard, {}, {address.key: flipped(entry.value, len(entry.value) // 2)})])


def flipped(value: bytes, position: int, bit: int = 0) -> bytes:
    damaged = bytearray(value)
    damaged[position] ^= 1 << bit
    return bytes(damaged)


async def test_every_value_that_is_stored_carries_its_checksum() -> None:
    store = MemoryStore(system())
    await fill(store)
    entries = all_entries(store)
    kinds = {(address.shard.split("/")[0], address.key.split("/")[0]) for address, _ in entries}
    assert len(kinds) >= 17, kinds
    for (shard, key), entry in entries:
        body = entry.value[5:]
        form, seed = entry.value[:1], crc32(f"{shard}\0{key}".encode())
        assert form[0] >= codec.FIRST_FORMAT, (shard, key)
        seed = seed if form[0] == codec.FIRST_FORMAT else crc32(form, seed)
        assert int.from_bytes(entry.value[1:5], "little") == crc32(body, seed)


def test_every_flipped_bit_of_a_value_is_detected_and_named() -> None:
    address = Address("log/abc/00000001", HEAD)
    value = codec.encode(Head(7, 1, 3, 2), address)
    assert codec.decode(value, Head, address) == Head(7, 1, 3, 2)
    for position in range(len(value)):
        for bit in range(8):
            with pytest.raises(CorruptObject, match=r"'head' of 'log/abc/00000001' \(Head\)"):
                codec.decode(flipped(value, position, bit), Head, address)
    for end in range(len(value)):
        with pytest.raises(CorruptObject, match="'head' of 'log/abc/00000001'"):
            codec.decode(value[:end], Head, address)


def test_a_value_under_another_key_is_damage() -> None:
    value = codec.encode(Head(), Address("log/a", HEAD))
    for elsewhere in (Address("log/b", HEAD), Address("log/a", "heae"), Address("log/ahead", "")):
        with pytest.raises(CorruptObject, match="checksum"):
            codec.decode(value, Head, elsewhere)


def test_another_format_says_what_to_do() -> None:
    value = codec.encode(Head(), Address("a", HEAD))
    with pytest.raises(
        CorruptObject, match="is in format 9, this version writes format 3 and reads it and the one before: another"
    ):
        codec.decode(b"\x09" + value[1:], Head, Address("a", HEAD))


async def test_a_damaged_value_is_never_used() -> None:
    """Each value in turn: whoever reads it fails with its name, or does without it."""
    first = MemoryStore(system())
    await fill(first)
    survived, told = [], []
    for position in range(len(all_entries(first))):
        store = MemoryStore(system())
        topic = await fill(store)
        address, _ = all_entries(store)[position]
        await damage(store, address)
        try:
            await look_at_all(store, topic)
        except CorruptObject as error:
            told.append((address.key, str(error)))
        else:
            survived.append((address.shard.split("/")[0], address.key.split("/")[0]))
    assert all(repr(key) in message for key, message in told)
    # Lists leave these out and log them; a lease is granted anew; of a mark only presence or version is asked.
    assert set(survived) <= {
        ("topics", "gone"),
        ("topics", "created"),
        ("topics", "deleted"),
        ("topics", "dead"),
        ("brokers", "broker"),
        ("brokers", "live"),
        ("group", "lease"),
        ("tables", "leaving"),
    }, survived


async def test_a_damaged_row_fails_the_appends_of_its_partition_only() -> None:
    store = MemoryStore(system())
    topic = await Topics(store, system()).create("t", 3, {})
    zero, one, two = topic.each_partition()
    await Committer(store).commit([offer(partition) for partition in (zero, one, two)], {})
    await damage(store, Address(shard_of(zero), HEAD))
    await damage(store, Address(shard_of(one), producer_key(5)))
    verdicts: dict[StreamPartition, Verdict] = {}
    await Committer(store).commit([offer(partition, 2) for partition in (zero, one, two)], verdicts)
    assert isinstance(verdicts[two], Committed)
    for partition, name in ((zero, "'head'"), (one, "'p/0000000000000005'")):
        verdict = verdicts[partition]
        assert isinstance(verdict, Unreadable)
        assert name in str(verdict.error)
        assert not verdict.unknown
    verdicts = {}
    await Committer(store).resume([offer(zero, 3)], verdicts)
    assert isinstance(verdicts[zero], Unreadable)
    assert verdicts[zero].unknown


async def test_damage_found_by_a_lost_race_says_if_an_earlier_attempt_may_have_landed() -> None:
    class Racing(MemoryStore):
        armed = False

        async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
            if self.armed:
                self.armed = False
                await damage(self, Address(transactions[0].shard, HEAD))
            return await super().transact(transactions)

    for resumed in (False, True):
        store = Racing(system())
        [partition] = (await Topics(store, system()).create("t", 1, {})).each_partition()
        store.armed = True
        verdicts: dict[StreamPartition, Verdict] = {}
        committer = Committer(store)
        await (committer.resume if resumed else committer.commit)([offer(partition)], verdicts)
        verdict = verdicts[partition]
        assert isinstance(verdict, Unreadable)
        assert verdict.unknown is resumed


async def test_a_damaged_partition_does_not_hide_the_others_from_readers() -> None:
    store = MemoryStore(system())
    topic = await Topics(store, system()).create("t", 3, {})
    zero, one, two = topic.each_partition()
    await Committer(store).commit([offer(partition) for partition in (zero, one, two)], {})
    [extent] = await store.range(shard_of(one), "x/", "x0")
    [good] = await store.get([Address(shard_of(zero), HEAD)])
    assert good is not None
    await damage(store, Address(shard_of(zero), HEAD))
    await damage(store, Address(shard_of(one), extent.key))
    tails = Tails(store)
    await tails.refresh([zero, one, two])
    assert tails.get(two).end_offset == 1
    for partition in (zero, one):
        assert not tails.knows(partition)
        with pytest.raises(CorruptObject):
            tails.get(partition)
    await store.transact([Transaction(shard_of(zero), {}, {HEAD: good.value})])
    await tails.refresh([zero])
    assert tails.get(zero).end_offset == 1


async def test_a_missing_extent_is_an_alarm() -> None:
    store = MemoryStore(system())
    topic = await Topics(store, system()).create("t", 1, {})
    [partition] = topic.each_partition()
    for flush in (1, 2, 3):
        await Committer(store).commit([offer(partition, flush)], {})
    entries = await store.range(shard_of(partition), "x/", "x0")
    await store.transact([Transaction(shard_of(partition), {}, {}, deletes=[entries[1].key])])
    with pytest.raises(CorruptObject, match="for the offsets 1 to 2 are missing"):
        await read_extents(store, partition)


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
async def test_a_damaged_lease_is_granted_anew(backend: str, tmp_path: Path) -> None:
    store: Store = MemoryStore(system()) if backend == "memory" else await open_sqlite(str(tmp_path / "m.db"))
    address = Address("s", "lease")
    mine = await store.acquire_lease(address, "me", ttl_ms=60_000)
    if isinstance(store, MemoryStore):
        store._shards["s"].entries["lease"] = Entry("lease", b"\x02nonsense", mine.token)
    else:
        connection = sqlite3.connect(tmp_path / "m.db")
        connection.execute("UPDATE kv SET value = X'02FF'")
        connection.commit()
        connection.close()
    assert await store.leases("s", "", "~") == []
    theirs = await store.acquire_lease(address, "you", ttl_ms=60_000)
    assert theirs.holder == "you"
    assert theirs.token > mine.token
    await store.close()


async def test_a_database_with_damaged_pages_fails_with_its_name(tmp_path: Path) -> None:
    """Whatever is flipped: an answer, or an error of ours that names the file or the value."""
    whole = tmp_path / "whole.db"
    store = await open_sqlite(str(whole))
    topic = await fill(store)
    await store.close()
    data = whole.read_bytes()
    path = tmp_path / "metadata.db"
    rng = random.Random(5)

    async def read() -> None:
        store = await open_sqlite(str(path))
        try:
            await look_at_all(store, topic)
        finally:
            await store.close()

    failures: list[str] = []
    for round_number in range(60):
        damaged = bytearray(data)
        for _ in range(1 if round_number % 2 else 40):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        for leftover in tmp_path.glob("metadata.db*"):
            leftover.unlink()
        path.write_bytes(damaged)
        try:
            await read()
        except LakestreamError as error:
            failures.append(str(error))
    assert len(failures) > 10
    named = [message for message in failures if str(path) in message or "the metadata value" in message]
    assert len(named) > len(failures) * 0.8


async def test_the_counter_of_versions_is_kept_twice(tmp_path: Path) -> None:
    path = tmp_path / "m.db"

    async def write() -> None:
        store = await open_sqlite(str(path))
        try:
            await store.transact([Transaction("s", {}, {"k": b"v"})])
        finally:
            await store.close()

    await write()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE counter SET version = version - 1")
    connection.commit()
    connection.close()
    with pytest.raises(CorruptObject, match=f"{path} is damaged: the counter of versions"):
        await write()


async def test_ids_do_not_lead_to_a_successors_row() -> None:
    store = MemoryStore(system())
    topics = Topics(store, system())
    topic = await topics.create("t", 1, {})
    await damage(store, Address("topics", "name/t"))
    found = await topics.find_ids([topic.topic_id, UUID(int=1)])
    assert set(found) == {topic.topic_id}
    assert isinstance(found[topic.topic_id], CorruptObject)
    assert await topics.list() == []
    with pytest.raises(CorruptObject, match="'name/t' of 'topics'"):
        await topics.create("t", 1, {})
