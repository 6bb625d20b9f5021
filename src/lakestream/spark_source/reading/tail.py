"""Ranges of offsets read from the brokers, batch by batch, as Arrow rows."""

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final
from uuid import UUID

import pyarrow as pa

from lakestream.errors import CorruptRecords, OffsetOutOfRange, Unavailable, UnknownStream
from lakestream.kafka.wire.fetch_client import (
    INCONSISTENT_TOPIC_ID,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    Answer,
    answer,
    request,
)
from lakestream.records import Arena, Run, decode
from lakestream.records.visible import visible_runs
from lakestream.table.parquet.arrow import to_arrow
from lakestream.table.reading.ranges import Ranges
from lakestream.table.shape import TableShape

Address = tuple[str, int]

_FETCH_BYTES: Final = 8 * 1024 * 1024
_MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
_WAIT_MS: Final = 500
_SOCKET_TIMEOUT_S: Final = 30.0
_PATIENCE_S: Final = 60.0
"""Without a single record in this time the task fails, for Spark to try it elsewhere."""
_PAUSE_S: Final = 0.2
_GONE: Final = frozenset({UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID})


def read_tail(topic_id: UUID, ranges: Ranges, brokers: Sequence[Address], shape: TableShape) -> Iterator[pa.Table]:
    """The rows of the ranges, by partition and offset. A table's memory is used again for the next: be done with it.

    Any broker serves any partition; the first one that answers is kept.

    Raises:
        UnknownStream: the topic with this id is gone, whatever its name means now.
        OffsetOutOfRange: some of the offsets are no longer in the log.
        Unavailable: no broker answers.
    """
    with closing(BrokerConnection(brokers)) as connection:
        for columns in decode(_runs(connection, topic_id, ranges), Arena()):
            rows = to_arrow(columns, shape)
            held = ranges.holds(columns.partition, columns.offset)
            yield rows if held.all() else rows.filter(pa.array(held))


def _runs(brokers: "BrokerConnection", topic_id: UUID, ranges: Ranges) -> Iterator[Run]:
    for partition, start, end in ranges:
        offset, deadline = start, time.monotonic() + _PATIENCE_S
        while offset < end:
            found = brokers.fetch(topic_id, partition, offset, deadline)
            if len(found.records):
                runs, after = visible_runs(partition, found.records, found.aborted)
                if after <= offset:
                    raise CorruptRecords(f"the broker answers a fetch from offset {offset} with records before {after}")
                offset = after
                deadline = time.monotonic() + _PATIENCE_S
                yield from runs
            elif time.monotonic() > deadline:
                raise Unavailable(
                    f"the brokers give nothing from offset {offset} of partition {partition} on, although the log "
                    f"reached {end}: look at their logs"
                )


class BrokerConnection:
    """One connection at a time, to whichever broker answers."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = list(addresses)
        self._socket: socket.socket | None = None
        self._requests = 0

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def fetch(self, topic_id: UUID, partition: int, offset: int, deadline: float) -> Answer:
        """Tries the brokers in turn until one answers."""
        while True:
            try:
                found = self._ask(topic_id, partition, offset)
            except (OSError, CorruptRecords) as error:
                trouble = str(error) or type(error).__name__
                self.close()
                self._addresses.append(self._addresses.pop(0))
            else:
                if not found.error_code:
                    return found
                trouble = f"error {found.error_code}"
                _raise_if_final(found, topic_id, partition, offset)
            if time.monotonic() > deadline:
                places = ", ".join(f"{host}:{port}" for host, port in self._addresses)
                raise Unavailable(f"no broker of {places} serves partition {partition} from {offset} on: {trouble}")
            time.sleep(_PAUSE_S)

    def _ask(self, topic_id: UUID, partition: int, offset: int) -> Answer:
        if self._socket is None:
            self._socket = socket.create_connection(self._addresses[0], _SOCKET_TIMEOUT_S)
        self._requests += 1
        self._socket.sendall(
            request(
                topic_id,
                partition,
                offset,
                correlation_id=self._requests,
                max_bytes=_FETCH_BYTES,
                wait_ms=_WAIT_MS,
            )
        )
        size_bytes = int.from_bytes(_receive(self._socket, 4), "big")
        if size_bytes > _MAX_ANSWER_BYTES:
            raise CorruptRecords(f"the broker announces an answer of {size_bytes} bytes")
        return answer(_receive(self._socket, size_bytes), self._requests)


def _receive(connection: socket.socket, size_bytes: int) -> memoryview:
    data = memoryview(bytearray(size_bytes))
    at = 0
    while at < size_bytes:
        count = connection.recv_into(data[at:])
        if count == 0:
            raise ConnectionError("the broker closed the connection")
        at += count
    return data


def _raise_if_final(found: Answer, topic_id: UUID, partition: int, offset: int) -> None:
    if found.error_code in _GONE:
        raise UnknownStream(
            f"partition {partition} of the topic with id {topic_id} is gone: the topic was deleted, or made anew under "
            "its name, which is another stream"
        )
    if found.error_code == OFFSET_OUT_OF_RANGE:
        raise OffsetOutOfRange(
            f"offset {offset} of partition {partition} was there when the read was planned and has been deleted since: "
            "run it again"
        )
