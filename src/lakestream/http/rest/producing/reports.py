"""What is told of a record in version 3: where it is, or why it is nowhere."""

from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from lakestream.http.rest.errors import Fault
from lakestream.http.rest.producing.encoding import WantedRecord
from lakestream.http.rest.producing.schemas import DataSchema
from lakestream.http.rest.producing.sent import SentData
from lakestream.http.rest.producing.writing import WrittenRecord

_OK = 200


class DataReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    size: int
    type: str
    subject: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None


class RecordReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    error_code: int
    cluster_id: str | None = None
    topic_name: str | None = None
    partition_id: int | None = None
    offset: int | None = None
    timestamp: str | None = None
    key: DataReport | None = None
    value: DataReport | None = None
    message: str | None = None


def reported(
    cluster_id: str,
    topic: str,
    sent: tuple[SentData | None, SentData | None],
    wanted: WantedRecord | Fault,
    outcome: WrittenRecord | Fault,
) -> RecordReport:
    if isinstance(outcome, Fault) or isinstance(wanted, Fault):
        fault = outcome if isinstance(outcome, Fault) else wanted
        assert isinstance(fault, Fault)
        return RecordReport(fault.code, message=fault.message)
    key, value = sent
    return RecordReport(
        _OK,
        cluster_id,
        topic,
        outcome.partition,
        outcome.offset,
        iso_time(outcome.timestamp_ms),
        _data(key, wanted.record.key, wanted.key_schema),
        _data(value, wanted.record.value, wanted.value_schema),
    )


@lru_cache(maxsize=1024)
def iso_time(time_ms: int) -> str | None:
    """None: no time, or none that a calendar has."""
    try:
        found = datetime.fromtimestamp(time_ms // 1000, UTC).replace(microsecond=time_ms % 1000 * 1000)
    except (ValueError, OverflowError, OSError):
        return None
    return None if time_ms < 0 else found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _data(sent: SentData | None, data: bytes | None, schema: DataSchema | None) -> DataReport | None:
    if sent is None:
        return None
    size = 0 if data is None else len(data)
    if schema is None:
        return DataReport(size, sent.type or "")
    return DataReport(size, schema.type, schema.subject, schema.schema.schema_id, schema.version)
