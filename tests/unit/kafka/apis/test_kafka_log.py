"""Produce, Fetch, ListOffsets, OffsetForLeaderEpoch and InitProducerId: what clients hear, error by error."""

import struct
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from support.clients.batches import batch
from support.clients.wire import Client, span, with_door
from support.fakes.streams import FakeStreams

from lakestream.errors import (
    CorruptRecords,
    DuplicateSequence,
    FencedError,
    InvalidRecords,
    InvalidTimestamp,
    LakestreamError,
    OffsetOutOfRange,
    Overloaded,
    ProducerFenced,
    RecordsTooLarge,
    RegistryRefused,
    SequenceGap,
    StorageError,
    Unavailable,
    UnknownStream,
    UnsupportedRecords,
)
from lakestream.kafka.errors import code_of, fetch_code
from lakestream.model import StreamPartition


def _produce(topic: dict[str, Any], records: bytes | None = None, **changes: Any) -> dict[str, Any]:
    data = {"index": 0, "records": batch(b"v") if records is None else records}
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout": span(5_000),
        "topic_data": [{**topic, "partition_data": [data]}],
    } | changes


async def _produced(client: Client, version: int, request: dict[str, Any]) -> Any:
    return (await client.ask(0, version, request)).responses[0].partition_responses[0]


@pytest.mark.parametrize("acks", [2, -2, 7])
def test_impossible_acks(acks: int) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        answer = await _produced(client, 9, _produce({"name": "t"}, acks=acks))
        assert answer.error_code is ErrorCode.invalid_required_acks
        assert streams.appended == 0

    with_door(test)


def test_transactional_records_are_refused() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        answer = await _produced(client, 9, _produce({"name": "t"}, transactional_id="tx"))
        assert answer.error_code is ErrorCode.transactional_id_authorization_failed
        assert streams.appended == 0

    with_door(test)


def test_unknown_topics_partitions_and_ids() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        topic = await streams.topics.create("t", 1, {})
        answer = await _produced(client, 9, _produce({"name": "nowhere"}))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.unknown_topic_or_partition, -1)
        answer = await _produced(client, 13, _produce({"topic_id": UUID(int=7)}))
        assert answer.error_code is ErrorCode.unknown_topic_id
        answer = await _produced(client, 13, _produce({"topic_id": None}))
        assert answer.error_code is ErrorCode.unknown_topic_id
        for index in (1, -1, 2**31 - 1):
            data = {"partition_data": [{"index": index, "records": batch(b"v")}], "topic_id": topic.topic_id}
            answer = await _produced(client, 13, _produce({}, topic_data=[data]))
            assert answer.error_code is ErrorCode.unknown_topic_or_partition
        answer = await _produced(client, 13, _produce({"topic_id": topic.topic_id}))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)

    with_door(test)


def test_one_bad_partition_spoils_no_other() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 3, {})
        data = [
            {"index": 0, "records": batch(b"v")},
            {"index": 1, "records": b"junk"},
            {"index": 2, "records": None},
        ]
        request = _produce({}, topic_data=[{"name": "t", "partition_data": data}])
        answers = (await client.ask(0, 9, request)).responses[0].partition_responses
        codes = [answer.error_code for answer in answers]
        assert codes == [ErrorCode.none, ErrorCode.corrupt_message, ErrorCode.invalid_record]
        assert streams.appended == 1

    with_door(test)


def test_zstd_needs_version_7() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        records = batch(b"v" * 100, compression=4)
        for version, code in ((6, ErrorCode.unsupported_compression_type), (7, ErrorCode.none)):
            assert (await _produced(client, version, _produce({"name": "t"}, records))).error_code is code

    with_door(test)


def test_an_append_that_takes_too_long_is_answered_and_goes_on() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        topic = await streams.topics.create("t", 1, {})
        answer = await _produced(client, 9, _produce({"name": "t"}, timeout=span(20)))
        assert answer.error_code is ErrorCode.request_timed_out
        assert streams.budget.used_bytes > 0
        again = await _produced(client, 9, _produce({"name": "t"}))
        assert again.base_offset == 1
        assert streams.logs[StreamPartition(topic.topic_id, 0)].end_offset == 2

    with_door(test, flush_ms=200)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CorruptRecords("x"), ErrorCode.corrupt_message),
        (InvalidRecords("x"), ErrorCode.invalid_record),
        (UnsupportedRecords("x"), ErrorCode.invalid_record),
        (InvalidTimestamp("x"), ErrorCode.invalid_timestamp),
        (RecordsTooLarge("x"), ErrorCode.message_too_large),
        (UnknownStream("x"), ErrorCode.unknown_topic_or_partition),
        (SequenceGap("x"), ErrorCode.out_of_order_sequence_number),
        (DuplicateSequence("x"), ErrorCode.duplicate_sequence_number),
        (ProducerFenced("x"), ErrorCode.invalid_producer_epoch),
        (OffsetOutOfRange("x"), ErrorCode.offset_out_of_range),
        (Unavailable("x"), ErrorCode.request_timed_out),
        (Overloaded("x"), ErrorCode.not_enough_replicas),
        (StorageError("x"), ErrorCode.kafka_storage_error),
    ],
)
def test_errors_have_kafkas_codes(error: LakestreamError, code: ErrorCode) -> None:
    assert code_of(error) is code


@pytest.mark.parametrize("error", [Unavailable("x"), Overloaded("x"), StorageError("x"), FencedError("x")])
def test_a_consumer_is_told_only_what_it_retries_in_silence(error: LakestreamError) -> None:
    """Java's consumer ends at every other code of a Fetch that is none of the request's own fault."""
    assert fetch_code(error) in (ErrorCode.not_leader_or_follower, ErrorCode.kafka_storage_error)


def test_every_error_has_a_code_of_its_own_or_of_an_ancestor() -> None:
    def descendants(kind: type[LakestreamError]) -> set[type[LakestreamError]]:
        return {kind}.union(*(descendants(each) for each in kind.__subclasses__()))

    # The registry speaks HTTP alone.
    for kind in descendants(LakestreamError) - {LakestreamError, RegistryRefused}:
        assert code_of(kind("x")) is not ErrorCode.unknown_server_error, kind


def _fetch(topics: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    return {
        "max_wait": span(0),
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 1,
        "session_id": 0,
        "session_epoch": -1,
        "forgotten_topics_data": (),
        "topics": topics,
    } | changes


def _part(partition: int = 0, offset: int = 0, **changes: Any) -> dict[str, Any]:
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20} | changes


def test_fetched_batches_carry_their_offsets() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        topic = await streams.topics.create("t", 2, {})
        for _ in range(3):
            await client.ask(0, 9, _produce({"name": "t"}, batch(b"a", b"b")))
        request = _fetch([{"topic_id": topic.topic_id, "partitions": [_part(1), _part(0, 3)]}])
        answer = await client.ask(1, 18, request)
        assert (answer.session_id, answer.error_code) == (0, ErrorCode.none)
        empty, full = answer.responses[0].partitions
        assert (empty.partition_index, empty.high_watermark, empty.records) == (1, 0, b"")
        assert (full.partition_index, full.high_watermark, full.last_stable_offset) == (0, 6, 6)
        assert struct.unpack_from(">q", full.records)[0] == 2
        assert full.aborted_transactions == ()

    with_door(test)


def test_fetch_errors_are_per_partition_and_answer_at_once() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        topic = await streams.topics.create("t", 2, {})
        request = _fetch(
            [
                {"topic_id": UUID(int=9), "partitions": [_part()]},
                {"topic_id": topic.topic_id, "partitions": [_part(0, 99), _part(7), _part(1, current_leader_epoch=3)]},
            ],
            max_wait=span(50_000),
        )
        answer = await client.ask(1, 16, request)
        codes = [part.error_code for each in answer.responses for part in each.partitions]
        assert codes == [
            ErrorCode.unknown_topic_id,
            ErrorCode.offset_out_of_range,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.unknown_leader_epoch,
        ]

    with_door(test)


def test_a_fetch_session_that_was_never_given_out_is_unknown() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        answer = await client.ask(1, 12, _fetch([], session_id=5, session_epoch=3))
        assert answer.error_code is ErrorCode.fetch_session_id_not_found

    with_door(test)


def test_list_offsets() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        await client.ask(0, 9, _produce({"name": "t"}, batch(b"a", b"b", timestamp_ms=1_000)))
        await client.ask(0, 9, _produce({"name": "t"}, batch(b"c", timestamp_ms=5_000)))
        asked = [-2, -1, -4, 1_001, 4_000, 9_000, -5, -99]
        parts = [{"partition_index": 0, "timestamp": timestamp} for timestamp in asked]
        parts.append({"partition_index": 3, "timestamp": -1})
        parts.append({"partition_index": 0, "timestamp": -1, "current_leader_epoch": 1})
        request = {
            "replica_id": -1,
            "isolation_level": 0,
            "timeout": span(0),
            "topics": [{"name": "t", "partitions": parts}],
        }
        answers = (await client.ask(2, 11, request)).topics[0].partitions
        assert [answer.offset for answer in answers] == [0, 3, 0, 0, 2, -1, -1, -1, -1, -1]
        assert answers[0].leader_epoch == 0
        codes = [answer.error_code for answer in answers[7:]]
        assert codes == [
            ErrorCode.invalid_request,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.unknown_leader_epoch,
        ]

    with_door(test)


def test_the_only_epoch_ends_at_the_end() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        await client.ask(0, 9, _produce({"name": "t"}, batch(b"a", b"b")))
        parts = [{"partition": 0, "leader_epoch": epoch} for epoch in (0, 5)]
        request = {
            "replica_id": -1,
            "topics": [{"topic": "t", "partitions": [*parts, {"partition": 4, "leader_epoch": 0}]}],
        }
        known, later, missing = (await client.ask(23, 4, request)).topics[0].partitions
        assert (known.leader_epoch, known.end_offset) == (0, 2)
        assert (later.leader_epoch, later.end_offset) == (-1, -1)
        assert missing.error_code is ErrorCode.unknown_topic_or_partition

    with_door(test)


def test_producer_ids() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        request = {"transactional_id": None, "transaction_timeout": span(0), "producer_id": -1, "producer_epoch": -1}
        first, second = [await client.ask(22, 5, request) for _ in range(2)]
        assert first.producer_id != second.producer_id
        assert first.producer_epoch == 0
        refused = await client.ask(22, 5, request | {"producer_id": 7})
        assert (refused.error_code, refused.producer_id) == (ErrorCode.invalid_request, -1)

    with_door(test)
