"""What every broker serves, held against what clients were told: the audit after real faults."""

from collections import Counter
from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from support.clients.crowd import Crew, Writer
from support.clients.records import Record, parse
from support.clients.wire import Client, span
from support.fakes.loops import run

FETCH = {
    "max_wait": span(100),
    "min_bytes": 1,
    "max_bytes": 1 << 23,
    "isolation_level": 0,
    "session_id": 0,
    "session_epoch": -1,
    "forgotten_topics_data": (),
}
Stream = dict[int, list[Record]]


async def _read(port: int, topic: str, partition: int) -> list[Record]:
    """The whole partition, from this very broker: a Kafka client would go to the one it is told to prefer.

    A broker that slept may name an old end while it serves what it knows. Asked for what comes behind, it looks."""
    client = await Client.connect(port)
    found: list[Record] = []
    offset = 0
    try:
        while True:
            asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 22}
            answer = await client.ask(1, 12, FETCH | {"topics": [{"topic": topic, "partitions": [asked]}]})
            (part,) = answer.responses[0].partitions
            assert part.error_code is ErrorCode.none, (port, partition, offset, part.error_code)
            records = parse([part.records]) if part.records else []
            if not records:
                assert offset == part.high_watermark, f"nothing at {offset} of partition {partition} from {port}"
                return found
            found += [record for record in records if record.offset >= offset]
            offset = records[-1].offset + 1
    finally:
        await client.close()


def read_all(ports: Sequence[int], topic: str, partitions: int) -> Stream:
    """The same from every broker."""
    streams: Stream = {}
    for partition in range(partitions):
        copies = [run(_read(port, topic, partition)) for port in ports]
        ends = [len(copy) for copy in copies]
        assert all(copy == copies[0] for copy in copies), f"brokers disagree on partition {partition}: {ends} records"
        streams[partition] = copies[0]
    return streams


def check_acked(stream: Stream, writers: Sequence[Writer]) -> None:
    """Every acknowledged record at its offset, once and in its producer's order, and nothing that was never sent."""
    unknown = set[bytes]().union(*(writer.unknown for writer in writers))
    for partition, records in stream.items():
        assert [record.offset for record in records] == list(range(len(records))), "offsets are dense"
        served = [(record.key, record.value, record.headers) for record in records]
        acked = {offset: tuple(sent) for writer in writers for offset, sent in writer.acked[partition].items()}
        assert len(acked) == sum(len(writer.acked[partition]) for writer in writers), "two records share an offset"
        assert [offset for offset, sent in acked.items() if served[offset : offset + 1] != [sent]] == []
        known = set(served)
        placeless = [tuple(sent) for writer in writers for sent in writer.placeless[partition]]
        assert [sent for sent in placeless if sent not in known] == [], "acknowledged, and nowhere"
        values = Counter(record.value or b"" for record in records)
        assert [value for value, count in values.items() if count > 1] == []
        assert set(values) - {sent[1] for sent in (*acked.values(), *placeless)} <= unknown
        for writer in writers:
            assert writer.twice == []
            mine = [int(headers[0][1] or b"") for _, value, headers in served if _by(value, writer)]
            assert mine == sorted(mine), "order within a producer"


def _by(value: bytes | None, writer: Writer) -> bool:
    return (value or b"").startswith(f"{writer.name}-".encode())


def check_group(crew: Crew, stream: Stream) -> None:
    assert crew.wrong == []
    for partition, records in stream.items():
        seen = crew.seen[partition]
        skipped = [offset for offset in range(crew.committed[partition]) if offset not in seen]
        assert skipped == [], f"the group committed {crew.committed[partition]} but was never handed these"
        assert [offset for offset, value in seen.items() if records[offset].value != value] == []
