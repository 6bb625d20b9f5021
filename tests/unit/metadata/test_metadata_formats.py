"""Each kind of stored value has its own format; the one before is read, every other is refused and never rewritten."""

from typing import Any
from uuid import UUID
from zlib import crc32

import msgspec
import pytest

from lakestream.errors import CorruptObject
from lakestream.metadata import codec
from lakestream.metadata.groups import GroupState
from lakestream.metadata.log.commit import Batch, Offer
from lakestream.metadata.log.committer import Committer, Unreadable, Verdict
from lakestream.metadata.log.head import (
    DATA_EXTENT,
    HEAD,
    NO_NUMBER,
    Extent,
    Head,
    ProducerRun,
    ProducerState,
    SessionMark,
    shard_of,
)
from lakestream.metadata.log.partition import create_head
from lakestream.metadata.store import Address, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.model import StreamPartition
from lakestream.runtime import system

ADDRESS = Address("log/x", "row")
MARK = [3, 4, 5, [[5, ""], [-1, "duplicate"]]]
BEFORE: list[tuple[int, Any, Any]] = [
    (
        2,
        [9, 1, 2, 3, {"s": MARK}],
        Head(9, 1, 2, 3, {"s": msgspec.convert(MARK, SessionMark)}, first_open=None, expired_producers=-1),
    ),
    (
        3,
        [0, 5, ["main"], "wal/x", 7, 8, 9, 10, b"", 0],
        Extent(0, 5, ("main",), "wal/x", 7, 8, 9, 10, b"", DATA_EXTENT, marker=None),
    ),
    (
        3,
        [2, [[10, 14, 100, 0], [15, 15, 200, 1]], 10, 7, ""],
        ProducerState(
            2,
            (ProducerRun(10, 14, 100, 0), ProducerRun(15, 15, 200, 1)),
            10,
            7,
            open=None,
            ended=NO_NUMBER,
            coordinator_epoch=-1,
        ),
    ),
    (3, [4, "consumer", "STABLE", "range", "m", 7], GroupState(4, "consumer", "STABLE", "range", "m", 7, "classic")),
]


def stored(form: int, body: bytes, address: Address = ADDRESS) -> bytes:
    seed = crc32(f"{address.shard}\0{address.key}".encode())
    checksum = crc32(body, seed if form == codec.FIRST_FORMAT else crc32(bytes((form,)), seed))
    return bytes((form,)) + checksum.to_bytes(4, "little") + body


@pytest.mark.parametrize(("form", "body", "value"), BEFORE)
def test_the_format_before_is_read_and_the_present_one_is_written(form: int, body: Any, value: Any) -> None:
    old = stored(form, msgspec.msgpack.encode(body))
    assert codec.decode(old, type(value), ADDRESS) == value
    new = codec.encode(value, ADDRESS)
    assert new[0] == form + 1
    assert codec.decode(new, type(value), ADDRESS) == value


@pytest.mark.parametrize("other", [0, 1, -1, +2, 255])
@pytest.mark.parametrize(("form", "body", "value"), BEFORE)
def test_every_other_format_is_refused(form: int, body: Any, value: Any, other: int) -> None:
    other = form + other if other in (-1, 2) else other
    with pytest.raises(CorruptObject, match=f"is in format {other}, this version writes format {form + 1}"):
        codec.decode(stored(other, msgspec.msgpack.encode(body)), type(value), ADDRESS)


def test_other_kinds_keep_their_first_format() -> None:
    assert codec.encode("text", ADDRESS)[0] == codec.FIRST_FORMAT
    with pytest.raises(CorruptObject, match="is in format 3, this version writes format 2"):
        codec.decode(stored(3, msgspec.msgpack.encode("text")), str, ADDRESS)


async def test_a_head_of_a_later_version_is_left_as_it_is() -> None:
    """An older process does not know its last field and would drop it."""
    store = MemoryStore(system())
    partition = StreamPartition(UUID(int=1), 0)
    await create_head(store, partition)
    at = Address(shard_of(partition), HEAD)
    later = stored(4, msgspec.msgpack.encode([0, 0, 0, 0, {}, None, -1, "later"]), at)
    await store.transact([Transaction(at.shard, {}, {HEAD: later})])
    verdicts: dict[StreamPartition, Verdict] = {}
    batch = Batch(0, 100, 10, 5, -1, -1, -1)
    offer = Offer(partition, "s", 1, 1, ("main",), "s-1", 0, [batch], lambda start, end: 0)
    await Committer(store).commit([offer], verdicts)
    assert isinstance(verdicts[partition], Unreadable)
    [entry] = await store.get([at])
    assert entry is not None
    assert entry.value == later
