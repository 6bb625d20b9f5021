"""The data of records as bytes, by their types."""

import binascii
from base64 import b64decode
from collections.abc import Sequence
from datetime import UTC
from functools import partial
from typing import Final, NamedTuple

import msgspec

from lakestream.access import Principal
from lakestream.errors import LakestreamError
from lakestream.http.rest.errors import NOT_JSON, Fault, RestError, fault_of
from lakestream.http.rest.producing.schemas import DataSchema, ProduceSchemas
from lakestream.http.rest.producing.sent import SentData, SentHeader, SentRecord
from lakestream.records.building import PlainRecord
from lakestream.runtime import Runtime
from lakestream.schemas.single.values import framed

_NULL: Final = b"null"
_PLAIN: Final = ("JSON", "STRING", "BINARY")
_TEXT: Final = msgspec.json.Decoder(str)
_MOST_PARTITIONS: Final = 1 << 31


class WantedRecord(NamedTuple):
    """`partition`: None where the key, or nobody, chooses it."""

    record: PlainRecord
    partition: int | None
    key_schema: DataSchema | None
    value_schema: DataSchema | None


class RecordEncoder:
    def __init__(self, schemas: ProduceSchemas, runtime: Runtime) -> None:
        self._schemas = schemas
        self._runtime = runtime

    async def encoded(
        self, principal: Principal, topic: str, sent: Sequence[SentRecord | Fault]
    ) -> list[WantedRecord | Fault]:
        """Each by itself; what was a fault stays one."""
        now_ms = self._runtime.clock.now_ms()
        known: dict[int, DataSchema | Fault] = {}
        for each in sent:
            if isinstance(each, SentRecord) and (_is_typed(each.key) or _is_typed(each.value)):
                await self._learn(principal, topic, each, known)
        work = partial(_all_encoded, sent, known, now_ms)
        return await self._runtime.off_loop(work) if known else work()

    async def _learn(
        self, principal: Principal, topic: str, sent: SentRecord, known: dict[int, DataSchema | Fault]
    ) -> None:
        """The schemas of its key and value, by where those are."""
        for data, is_key in ((sent.key, True), (sent.value, False)):
            if data is not None and _is_typed(data):
                try:
                    known[id(data)] = await self._schemas.find(principal, topic, data, is_key=is_key)
                except (LakestreamError, RestError) as error:
                    known[id(data)] = fault_of(error)


def _is_typed(data: SentData | None) -> bool:
    return data is not None and data.type not in _PLAIN


def _all_encoded(
    sent: Sequence[SentRecord | Fault], known: dict[int, DataSchema | Fault], now_ms: int
) -> list[WantedRecord | Fault]:
    return [each if isinstance(each, Fault) else _encoded(each, known, now_ms) for each in sent]


def _encoded(sent: SentRecord, known: dict[int, DataSchema | Fault], now_ms: int) -> WantedRecord | Fault:
    try:
        key, key_schema = _data(sent.key, known)
        value, value_schema = _data(sent.value, known)
        headers = [_header(each) for each in sent.headers] if sent.headers else ()
    except (LakestreamError, RestError) as error:
        return fault_of(error)
    partition = sent.partition_id
    if partition is not None and not 0 <= partition < _MOST_PARTITIONS:
        return Fault(40402, "Partition not found.")
    record = PlainRecord(key, value, now_ms if sent.timestamp is None else _milliseconds(sent), headers)
    return WantedRecord(record, partition, key_schema, value_schema)


def _data(sent: SentData | None, known: dict[int, DataSchema | Fault]) -> tuple[bytes | None, DataSchema | None]:
    """Raises `RestError`, `InvalidRecords`, `InvalidSchema`."""
    if sent is None:
        return None, None
    if sent.type == "JSON":
        text = bytes(sent.data)
        return (None if text == _NULL else text), None
    schema = known.get(id(sent))
    if isinstance(schema, Fault):
        raise RestError(schema.code, schema.message)
    text = bytes(sent.data)
    if text == _NULL:
        return None, schema
    if schema is not None:
        return framed(schema.schema, text), schema
    return plain(sent.type or "", text), None


def plain(kind: str, text: bytes) -> bytes:
    """Data without a schema out of its JSON. Raises `RestError`."""
    if kind == "JSON":
        return text
    try:
        found = _TEXT.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        wanted = "base64 string" if kind == "BINARY" else "string"
        raise RestError(NOT_JSON, f"data={_short(text)} is not a {wanted}.") from error
    if kind == "STRING":
        return found.encode()
    try:
        return b64decode(found, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RestError(NOT_JSON, f"data={_short(text)} is not a base64 string.") from error


def _header(sent: SentHeader) -> tuple[bytes, bytes | None]:
    try:
        return sent.name.encode(), None if sent.value is None else b64decode(sent.value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RestError(NOT_JSON, f"the value of the header {sent.name[:50]!r} is not a base64 string.") from error


def _milliseconds(sent: SentRecord) -> int:
    """Times that name no zone are UTC."""
    time = sent.timestamp
    assert time is not None
    whole = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return round(whole.timestamp() * 1000)


def _short(text: bytes) -> str:
    return text[:50].decode(errors="replace")
