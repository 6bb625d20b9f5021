"""What the table of one stream looks like: its columns with their field ids, how each is written, and the codec that
fills those of the value.

A value that views, plans and tiles carry. It knows neither Arrow nor PyIceberg, which a broker loads late: `schema` has
the same in Iceberg's words, `parquet.arrow` in Arrow's. Every shape has the columns of the log (`SYSTEM_NAMES`), found
by their names; the others are columns of the value, before or after them.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, Literal

import msgspec

KIND_RAW: Final = 0
KIND_TOMBSTONE: Final = 1
KIND_TYPED: Final = 2
KIND_TYPED_AND_RAW: Final = 3
"""What `_kind` says of a row: which columns hold its value."""
KINDS: Final = 4

Encoding = Literal["plain", "delta", "dictionary"]
Kind = Literal[
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "decimal",
    "date",
    "timestamp",
    "timestamptz",
    "string",
    "binary",
    "list",
    "map",
    "struct",
]
Content = Literal["", "enum", "json", "uuid", "format"]
"""What a column of text holds, if not just any. `format`: how the value was written, of which a file has few."""


class TableColumn(msgspec.Struct, frozen=True, array_like=True):
    """`kind` is Iceberg's word for a type; a list has its element `below` it, a map its key and its value, a struct its
    fields. `source`: the field's name in the schemas, where that cannot be a column's. `former`: names that the column
    had, under which it is in files, and its field in schemas.

    `has_statistics`: a file has bounds and null counts of it, where they prune, tell every row, or let a reader leave
    the column out. `is_full`: manifests have its bounds uncut. `is_noise`: it does not compress."""

    field_id: int
    name: str
    kind: Kind
    is_required: bool = False
    encoding: Encoding = "plain"
    has_statistics: bool = False
    is_full: bool = False
    is_noise: bool = False
    below: "tuple[TableColumn, ...]" = ()
    precision: int = 0
    scale: int = 0
    content: Content = ""
    source: str = ""
    former: tuple[str, ...] = ()


_HEADER: Final = (
    TableColumn(9, "key", "string", has_statistics=True),
    TableColumn(10, "value", "binary"),
)
SYSTEM_COLUMNS: Final = (
    TableColumn(1, "_stream_partition", "int", True, "dictionary", has_statistics=True, is_full=True),
    TableColumn(2, "_offset", "long", True, "delta", has_statistics=True, is_full=True),
    TableColumn(3, "_timestamp", "timestamptz", False, "delta", has_statistics=True, is_full=True),
    TableColumn(4, "_timestamp_type", "int", True, "dictionary", has_statistics=True),
    TableColumn(5, "_kind", "int", True, "dictionary"),
    TableColumn(6, "_key", "binary", has_statistics=True),
    TableColumn(7, "_headers", "list", below=(TableColumn(8, "element", "struct", below=_HEADER),)),
    TableColumn(11, "_headers_raw", "binary", has_statistics=True),
    TableColumn(12, "_value", "binary"),
    TableColumn(13, "_schema_id", "int", False, "dictionary"),
    TableColumn(14, "_crc", "int", True, is_noise=True),
)
"""Of the log, with the ids that they have in a raw table. Value columns begin at 100."""
KEY_COLUMN: Final = "_typed_key"
"""The fields of the record's key, in a struct, where the topic asks for them. Beside `_key`, which has its bytes."""
SYSTEM_NAMES: Final = frozenset(column.name for column in SYSTEM_COLUMNS) | {KEY_COLUMN}


class ValueSchema(msgspec.Struct, frozen=True, array_like=True):
    """A schema by which values of the table, or keys, were written: they can be told from the columns without asking
    anybody. `references`: other schemas that it uses, by name, each before those that need it. `trouble`: why values of
    it stay bytes; empty: they are columns. `format`: AVRO, PROTOBUF or JSON. `message`: of Protobuf, whose fields are
    the table's columns, if it is the table's first; empty: the schema's own choice."""

    schema_id: int
    text: str
    references: tuple[tuple[str, str], ...] = ()
    trouble: str = ""
    format: str = "AVRO"
    message: str = ""


class TypedKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """What fills the column `KEY_COLUMN`, as `TableShape` says it of the value's columns."""

    codec: str = ""
    schemas: tuple[ValueSchema, ...] = ()
    plain_schema_id: int | None = None


class TableShape(msgspec.Struct, frozen=True, omit_defaults=True, cache_hash=True):
    """`codec` names what fills the value's columns (`parquet.codec`); empty: there are none. `plain_schema_id`: the
    schema of values that do not say it themselves. Packed it is as long as what sets it apart from the raw one."""

    columns: tuple[TableColumn, ...] = SYSTEM_COLUMNS
    codec: str = ""
    row_group_bytes: int = 16 * 1024 * 1024
    schemas: tuple[ValueSchema, ...] = ()
    plain_schema_id: int | None = None
    key: TypedKey | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def stored_names(self, names: Sequence[str]) -> list[str]:
        """Under which names files may have these columns: one of them has each of its own once."""
        former = {column.name: column.former for column in self.columns if column.former}
        return [*names, *(old for name in names for old in former.get(name, ()))]

    def present(self, names: Sequence[str]) -> tuple[str, ...]:
        """What the columns are called now that are, or once were, called so; without those that there are not."""
        now = {old: column.name for column in self.columns for old in column.former} | {n: n for n in self.names}
        return tuple(now[name] for name in names if name in now)

    @property
    def value_columns(self) -> tuple[TableColumn, ...]:
        return tuple(column for column in self.columns if column.name not in SYSTEM_NAMES)

    def __reduce__(self) -> tuple[Callable[[bytes], "TableShape"], tuple[bytes]]:
        """Pickled as it is packed."""
        return unpack_shape, (msgspec.msgpack.encode(self),)

    def field_id(self, name: str) -> int:
        """Of a column. An engine may have taken any id that a system column has elsewhere."""
        return next(column.field_id for column in self.columns if column.name == name)

    def leaves(self) -> Iterator[tuple[str, TableColumn]]:
        """What Parquet stores, by its path there, in order."""
        for column in self.columns:
            yield from _leaves(column.name, column)


_KEPT_SHAPES: Final = 256


@lru_cache(_KEPT_SHAPES)
def key_shape(shape: TableShape) -> TableShape:
    """Of a table whose values would be the keys of this one: its columns are the fields of `KEY_COLUMN`."""
    key = shape.key or TypedKey()
    fields = next((column.below for column in shape.columns if column.name == KEY_COLUMN), ())
    return TableShape(fields, key.codec, schemas=key.schemas, plain_schema_id=key.plain_schema_id)


RAW: Final = TableShape()
"""Of a stream whose values are bytes."""

_BELOW: Final[dict[Kind, str]] = {"list": "list.", "map": "key_value."}
"""Between a column's path in Parquet and the names of those below."""

_PACKED: Final = msgspec.msgpack.Decoder(TableShape)
_SHAPES: Final = msgspec.json.Decoder(TableShape)


def shape_text(shape: TableShape) -> str:
    return msgspec.json.encode(shape).decode()


def unpack_shape(data: bytes) -> TableShape:
    return _PACKED.decode(data)


def parse_shape(text: str) -> TableShape:
    """Raises ValueError unless it is a shape with all columns of the log in their types."""
    try:
        found = _SHAPES.decode(text)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    ids = {column.field_id for column in found.columns}
    if len(set(found.names)) != len(found.columns) or len(ids) != len(found.columns):
        raise ValueError("a shape has a column twice")
    if found.value_columns and not found.codec:
        raise ValueError("a shape names no codec for the columns of its values")
    kinds = {column.name: _kind(column) for column in found.columns}
    for column in SYSTEM_COLUMNS:
        if kinds.get(column.name) != _kind(column):
            raise ValueError(f"a shape lacks the column {column.name}, or has it in another type")
    return found


def _kind(column: TableColumn) -> tuple[object, ...]:
    return column.kind, column.is_required, tuple((each.name, _kind(each)) for each in column.below)


def _leaves(path: str, column: TableColumn) -> Iterator[tuple[str, TableColumn]]:
    if not column.below:
        yield path, column
    for child in column.below:
        yield from _leaves(f"{path}.{_BELOW.get(column.kind, '')}{child.name}", child)
