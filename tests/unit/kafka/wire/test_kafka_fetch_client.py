"""The one Kafka request that Spark's tasks send by themselves."""

import struct
from datetime import timedelta
from io import BytesIO
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import request as kio_request
from kio.schema.fetch.v13 import response as kio_response
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.serial import entity_reader, entity_writer
from support.clients.batches import batch

from lakestream.errors import CorruptRecords
from lakestream.kafka.wire.fetch_client import Aborted, answer, request
from lakestream.records import Arena, control_batch, crc32c, decode, stamp
from lakestream.records.layout import ATTRIBUTES, CRC, PRODUCER_ID, TRANSACTIONAL_BIT
from lakestream.records.visible import visible_runs

TOPIC = UUID("11111111-2222-4333-8444-555555555555")


def test_a_reader_of_the_whole_protocol_understands_the_request() -> None:
    data = request(TOPIC, 3, 1 << 40, correlation_id=7, max_bytes=1000, wait_ms=500)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    header, size = entity_reader(RequestHeader)(data, 4)
    asked, used = entity_reader(kio_request.FetchRequest)(data, 4 + size)
    assert 4 + size + used == len(data)
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (1, 13, 7)
    assert (asked.isolation_level, asked.min_bytes, asked.max_wait) == (1, 1, timedelta(milliseconds=500))
    [topic] = asked.topics
    [partition] = topic.partitions
    assert topic.topic_id == TOPIC
    assert (partition.partition, partition.fetch_offset, partition.partition_max_bytes) == (3, 1 << 40, 1000)


def response(records: bytes | None, *, error: ErrorCode = ErrorCode.none, aborted: object = None) -> bytes:
    partition = kio_response.PartitionData(
        partition_index=3,
        error_code=error,
        high_watermark=9,
        last_stable_offset=9,
        log_start_offset=2,
        aborted_transactions=aborted,
        records=records,
    )
    topic = kio_response.FetchableTopicResponse(topic_id=TOPIC, partitions=(partition,))
    body = kio_response.FetchResponse(throttle_time=timedelta(), error_code=ErrorCode.none, responses=(topic,))
    sink = BytesIO()
    entity_writer(ResponseHeader)(sink, ResponseHeader(correlation_id=7))
    entity_writer(kio_response.FetchResponse)(sink, body)
    return sink.getvalue()


def test_the_answer_of_a_whole_protocol_is_understood() -> None:
    lost = (kio_response.AbortedTransaction(producer_id=5, first_offset=6),)
    found = answer(memoryview(response(b"x" * 300, aborted=lost)), 7)
    assert (found.error_code, found.log_start, found.aborted) == (0, 2, (Aborted(5, 6),))
    assert bytes(found.records) == b"x" * 300
    assert answer(memoryview(response(None, error=ErrorCode.offset_out_of_range)), 7).error_code == 1


def test_an_answer_that_is_none_is_refused() -> None:
    whole = response(b"records")
    with pytest.raises(CorruptRecords, match="where 8 was asked"):
        answer(memoryview(whole), 8)
    for length in range(len(whole) - 3):
        with pytest.raises(CorruptRecords):
            answer(memoryview(whole[:length]), 7)


def numbered(offset: int, *, producer: int | None = None) -> bytearray:
    data = bytearray(batch(b"v%d" % offset))
    if producer is not None:
        (attributes,) = struct.unpack_from(">h", data, ATTRIBUTES)
        struct.pack_into(">h", data, ATTRIBUTES, attributes | TRANSACTIONAL_BIT)
        struct.pack_into(">q", data, PRODUCER_ID, producer)
        struct.pack_into(">I", data, CRC, crc32c(memoryview(data)[ATTRIBUTES:]))
    stamp(data, offset)
    return data


def marker(offset: int, producer: int) -> bytearray:
    data = bytearray(control_batch(offset, offset))
    struct.pack_into(">q", data, PRODUCER_ID, producer)
    struct.pack_into(">I", data, CRC, crc32c(memoryview(data)[ATTRIBUTES:]))
    return data


def seen(parts: list[bytearray], aborted: tuple[Aborted, ...] = ()) -> tuple[list[int], int, int]:
    """Offsets that become rows, the offset after all, and how many runs it took."""
    runs, after = visible_runs(3, memoryview(b"".join(parts)), aborted)
    rows = [offset for columns in decode(runs, Arena()) for offset in columns.offset.tolist()]
    return rows, after, len(runs)


def test_adjacent_batches_are_one_run_and_gaps_keep_their_offsets() -> None:
    assert seen([numbered(4), numbered(5), numbered(6)]) == ([4, 5, 6], 7, 1)
    assert seen([numbered(4), numbered(9), numbered(10)]) == ([4, 9, 10], 11, 2)
    assert seen([numbered(4), bytearray(control_batch(5, 8)), numbered(9)]) == ([4, 9], 10, 1)


def test_records_of_aborted_transactions_are_not_seen() -> None:
    parts = [numbered(0, producer=5), numbered(1), numbered(2, producer=6), marker(3, 5), numbered(4, producer=5)]
    assert seen(parts, (Aborted(5, 0),)) == ([1, 2, 4], 5, 1)
    assert seen(parts, ()) == ([0, 1, 2, 4], 5, 1)
    assert seen(parts, (Aborted(6, 2), Aborted(5, 0)))[0] == [1, 4]
