"""Values behind the id of their schema, from and to JSON. Blocking where a schema is new."""

from typing import Any, Protocol

import msgspec

from lakestream.errors import InvalidRecords, InvalidSchema
from lakestream.records.layout import FRAME_BYTES
from lakestream.schemas.constraints import rules_of
from lakestream.schemas.registry.model import SchemaType
from lakestream.schemas.single.avro import avro_values
from lakestream.schemas.single.protobuf import protobuf_values
from lakestream.table.shape import ValueSchema


class _Values(Protocol):
    @property
    def name(self) -> str: ...

    def encoded(self, value: Any) -> bytes: ...

    def decoded(self, data: bytes) -> Any: ...


def framed(schema: ValueSchema, text: bytes) -> bytes:
    """The value that a JSON text tells, behind the schema's id. Raises `InvalidRecords`, `InvalidSchema`."""
    frame = b"\0" + schema.schema_id.to_bytes(FRAME_BYTES - 1, "big")
    if schema.format == SchemaType.JSON:
        rules = rules_of(schema)
        fault = "" if rules is None else rules.broken(text)
        if fault:
            raise InvalidRecords(fault)
        return frame + text
    return frame + _values(schema).encoded(msgspec.json.decode(text))


def unframed(schema: ValueSchema, data: bytes) -> Any:
    """What a value behind the schema's id says. Raises `InvalidRecords`, `InvalidSchema`."""
    rest = data[FRAME_BYTES:]
    if schema.format == SchemaType.JSON:
        try:
            return msgspec.json.decode(rest)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise InvalidRecords("the value is no JSON") from error
    return _values(schema).decoded(rest)


def record_name(schema: ValueSchema) -> str:
    """What the schema's record or message is called; empty: it has no name. Raises `InvalidSchema`."""
    return "" if schema.format == SchemaType.JSON else _values(schema).name


def _values(schema: ValueSchema) -> _Values:
    if schema.trouble:
        raise InvalidSchema(schema.trouble)
    references = tuple(schema.references)
    if schema.format == SchemaType.PROTOBUF:
        return protobuf_values(schema.text, references)
    return avro_values(schema.text, references)
