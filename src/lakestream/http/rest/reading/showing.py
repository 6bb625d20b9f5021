"""Records as JSON: bytes shown as what they are, or as the client asks."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from lakestream.errors import LakestreamError
from lakestream.http.rest.errors import RestError
from lakestream.http.rest.producing.reports import iso_time
from lakestream.records import Arena, Binary, Columns, Run, decode
from lakestream.records.layout import FRAME_BYTES
from lakestream.runtime import Runtime
from lakestream.schemas.registry.model import DEFAULT_CONTEXT, SchemaType
from lakestream.schemas.single.values import unframed
from lakestream.schemas.source import SchemaSource
from lakestream.table.shape import ValueSchema

FORMATS: Final = ("auto", "json", "string", "binary", "schema")
_TYPES: Final = {SchemaType.AVRO: "AVRO", SchemaType.PROTOBUF: "PROTOBUF", SchemaType.JSON: "JSONSCHEMA"}
_ASIDE_ROWS: Final = 200
"""More are put into words off the event loop."""
_ARENA_BYTES: Final = 64 * 1024
_SCHEMAS_MOST: Final = 1_000


class PlainRow(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


class ShownData(msgspec.Struct, frozen=True, omit_defaults=True):
    """`data`: JSON, text, or base64 of BINARY."""

    type: str
    data: Any
    schema_id: int | None = None


class ShownHeader(msgspec.Struct, frozen=True):
    """`value` is base64."""

    name: str
    value: str | None


class ShownRecord(msgspec.Struct, frozen=True):
    partition_id: int
    offset: int
    timestamp: str | None
    key: ShownData | None
    value: ShownData | None
    headers: list[ShownHeader]


def rows_of(runs: Sequence[Run], first_offset: int) -> Iterator[PlainRow]:
    """From that offset on: a run may begin before."""
    size = max((len(run.data) for run in runs), default=0)
    for columns in decode(runs, Arena(max(size, _ARENA_BYTES))):
        yield from (row for row in _rows(columns) if row.offset >= first_offset)


def _rows(columns: Columns) -> Iterator[PlainRow]:
    keys, values = _values(columns.key), _values(columns.value)
    names, header_values = _values(columns.header_key), _values(columns.header_value)
    ends = columns.header_offsets.tolist()
    times, offsets, partitions = columns.timestamp_ms.tolist(), columns.offset.tolist(), columns.partition.tolist()
    for index, offset in enumerate(offsets):
        headers = [(names[at] or b"", header_values[at]) for at in range(ends[index], ends[index + 1])]
        yield PlainRow(partitions[index], offset, times[index], keys[index], values[index], headers)


def _values(column: Binary) -> list[bytes | None]:
    ends, valid = column.offsets.tolist(), column.valid.tolist()
    data = column.data[: ends[-1]].tobytes() if ends else b""
    return [data[ends[at] : ends[at + 1]] if valid[at] else None for at in range(len(valid))]


class RecordShower:
    def __init__(self, source: SchemaSource, runtime: Runtime) -> None:
        self._source = source
        self._runtime = runtime
        self._known: dict[int, ValueSchema | None] = {}

    async def shown(self, rows: Sequence[PlainRow], key_format: str, value_format: str) -> list[ShownRecord]:
        """Raises `RestError` for what is not of the format that is asked for."""
        await self.learn([row.key for row in rows], key_format)
        await self.learn([row.value for row in rows], value_format)

        def work() -> list[ShownRecord]:
            return [
                ShownRecord(
                    row.partition,
                    row.offset,
                    iso_time(row.timestamp_ms),
                    self.data(row.key, key_format),
                    self.data(row.value, value_format),
                    [
                        ShownHeader(name.decode(errors="replace"), None if value is None else b64encode(value).decode())
                        for name, value in row.headers
                    ],
                )
                for row in rows
            ]

        return await self._runtime.off_loop(work) if len(rows) > _ASIDE_ROWS or self._known else work()

    async def learn(self, values: Sequence[bytes | None], form: str) -> None:
        """The schemas that values name. Raises `RegistryUnavailable`."""
        if form not in ("auto", "schema"):
            return
        ids = {int.from_bytes(each[1:FRAME_BYTES], "big") for each in values if each is not None and _is_framed(each)}
        if len(self._known) > _SCHEMAS_MOST:
            self._known.clear()
        for schema_id in ids - self._known.keys():
            found = await self._source.by_id(schema_id, DEFAULT_CONTEXT)
            if found is not None:
                self._known[schema_id] = found

    def data(self, value: bytes | None, form: str) -> ShownData | None:
        if value is None:
            return None
        if form == "binary":
            return ShownData("BINARY", b64encode(value).decode())
        if form == "string":
            return ShownData("STRING", value.decode(errors="replace"))
        if form == "json":
            return ShownData("JSON", _json(value, must=True))
        typed = self._typed(value)
        if typed is not None:
            return typed
        if form == "schema":
            raise RestError(42203, "Conversion of a value to JSON failed: it names no schema that is known")
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return ShownData("BINARY", b64encode(value).decode())
        if text[:1] in ("{", "["):
            found = _json(value, must=False)
            if found is not None:
                return ShownData("JSON", found)
        return ShownData("STRING", text)

    def _typed(self, value: bytes) -> ShownData | None:
        if not _is_framed(value):
            return None
        schema_id = int.from_bytes(value[1:FRAME_BYTES], "big")
        schema = self._known.get(schema_id)
        if schema is None:
            return None
        try:
            return ShownData(_TYPES[SchemaType(schema.format)], unframed(schema, value), schema_id)
        except LakestreamError:
            return None


def _is_framed(value: bytes) -> bool:
    return len(value) >= FRAME_BYTES and value[0] == 0


def _json(value: bytes, *, must: bool) -> Any:
    """The text on one line, its numbers and the order of its fields as they stand, if it is JSON."""
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if must:
            raise RestError(42203, f"Conversion of a value to JSON failed: {error}") from error
        return None
    return msgspec.Raw(msgspec.json.format(value, indent=-1))
