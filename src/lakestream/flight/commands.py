"""Commands of Flight SQL as they are sent: Protobuf messages within an `Any`.

Only what is served here, described by name, number and kind of each field; other fields are passed over.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import DecodeError, Message

from lakestream.errors import RequestError

_PACKAGE: Final = "arrow.flight.protocol.sql"
_PREFIX: Final = f"type.googleapis.com/{_PACKAGE}."
_KINDS: Final = descriptor_pb2.FieldDescriptorProto
_TABLE_KEYS: Final = (("catalog", 1, "STRING"), ("db_schema", 2, "STRING"), ("table", 3, "STRING"))
_FIELDS: Final[dict[str, tuple[tuple[str, int, str], ...]]] = {
    "CommandStatementQuery": (("query", 1, "STRING"),),
    "TicketStatementQuery": (("statement_handle", 1, "BYTES"),),
    "CommandPreparedStatementQuery": (("prepared_statement_handle", 1, "BYTES"),),
    "ActionCreatePreparedStatementRequest": (("query", 1, "STRING"),),
    "ActionCreatePreparedStatementResult": (
        ("prepared_statement_handle", 1, "BYTES"),
        ("dataset_schema", 2, "BYTES"),
        ("parameter_schema", 3, "BYTES"),
    ),
    "ActionClosePreparedStatementRequest": (("prepared_statement_handle", 1, "BYTES"),),
    "DoPutPreparedStatementResult": (("prepared_statement_handle", 1, "BYTES"),),
    "CommandGetSqlInfo": (("info", 1, "UINT32*"),),
    "CommandGetXdbcTypeInfo": (),
    "CommandGetCatalogs": (),
    "CommandGetDbSchemas": (("catalog", 1, "STRING"), ("db_schema_filter_pattern", 2, "STRING")),
    "CommandGetTables": (
        ("catalog", 1, "STRING"),
        ("db_schema_filter_pattern", 2, "STRING"),
        ("table_name_filter_pattern", 3, "STRING"),
        ("table_types", 4, "STRING*"),
        ("include_schema", 5, "BOOL"),
    ),
    "CommandGetTableTypes": (),
    "CommandGetPrimaryKeys": _TABLE_KEYS,
    "CommandGetExportedKeys": _TABLE_KEYS,
    "CommandGetImportedKeys": _TABLE_KEYS,
    "CommandGetCrossReference": (),
}


def _described() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="lakestream/flight.proto", package=_PACKAGE, syntax="proto2")
    for name, fields in _FIELDS.items():
        made = file.message_type.add(name=name)
        for field, number, kind in fields:
            label = _KINDS.LABEL_REPEATED if kind.endswith("*") else _KINDS.LABEL_OPTIONAL
            made.field.add(name=field, number=number, label=label, type=getattr(_KINDS, f"TYPE_{kind.rstrip('*')}"))
    return file


_POOL: Final = descriptor_pool.DescriptorPool()
_POOL.Add(_described())
_CLASSES: Final = {
    name: message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _FIELDS
}


def unpack(data: bytes) -> tuple[str, Any]:
    """The message's name and itself. Raises `RequestError`, also for what is not served."""
    packed = Packed()
    try:
        packed.ParseFromString(data)
        name = packed.type_url.removeprefix(_PREFIX)
        if not packed.type_url.startswith(_PREFIX) or name not in _CLASSES:
            raise RequestError(f"{packed.type_url[:200] or 'an empty command'} is not served here")
        found: Message = _CLASSES[name]()
        found.ParseFromString(packed.value)
    except DecodeError as error:
        raise RequestError(f"this is no command of Flight SQL: {error}") from error
    return name, found


def pack(name: str, **fields: bytes) -> bytes:
    """Within an `Any`."""
    packed = Packed(type_url=_PREFIX + name, value=plain(name, **fields))
    data: bytes = packed.SerializeToString()
    return data


def plain(name: str, **fields: bytes) -> bytes:
    data: bytes = _CLASSES[name](**fields).SerializeToString()
    return data
