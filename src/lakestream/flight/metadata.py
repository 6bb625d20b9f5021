"""What clients of Flight SQL ask about the server, its catalog and its tables, as tables of Arrow."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

CATALOG: Final = "lakestream"
TABLE: Final = "TABLE"
_TEXT: Final = pa.string()


def _schema(**fields: pa.DataType) -> pa.Schema:
    """A name that ends in _ may be null."""
    return pa.schema([pa.field(name.rstrip("_"), kind, name.endswith("_")) for name, kind in fields.items()])


_INFO: Final = pa.schema(
    [
        pa.field("info_name", pa.uint32(), False),
        pa.field(
            "value",
            pa.dense_union(
                [
                    pa.field("string_value", _TEXT),
                    pa.field("bool_value", pa.bool_()),
                    pa.field("bigint_value", pa.int64()),
                    pa.field("int32_bitmask", pa.int32()),
                    pa.field("string_list", pa.list_(pa.field("string_data", _TEXT))),
                    pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32())))),
                ]
            ),
            False,
        ),
    ]
)
_SERVER: Final[dict[int, str | bool | int]] = {
    0: "Lakestream",
    1: "1",
    2: pa.__version__,
    3: True,
    4: True,
    5: False,
    8: 0,
    9: False,
    500: False,
    501: False,
    502: False,
    503: 1,
    504: '"',
    505: 1,
}
"""Name, version, Arrow's version, read-only, SQL, no Substrait, transactions or cancelling by action; no DDL; how
identifiers are quoted and compared."""
_KEYS: Final = _schema(
    pk_catalog_name_=_TEXT,
    pk_db_schema_name_=_TEXT,
    pk_table_name=_TEXT,
    pk_column_name=_TEXT,
    fk_catalog_name_=_TEXT,
    fk_db_schema_name_=_TEXT,
    fk_table_name=_TEXT,
    fk_column_name=_TEXT,
    key_sequence=pa.int32(),
    fk_key_name_=_TEXT,
    pk_key_name_=_TEXT,
    update_rule=pa.uint8(),
    delete_rule=pa.uint8(),
)
_TYPES: Final = _schema(
    type_name=_TEXT,
    data_type=pa.int32(),
    column_size_=pa.int32(),
    literal_prefix_=_TEXT,
    literal_suffix_=_TEXT,
    create_params_=pa.list_(pa.field("item", _TEXT, False)),
    nullable=pa.int32(),
    case_sensitive=pa.bool_(),
    searchable=pa.int32(),
    unsigned_attribute_=pa.bool_(),
    fixed_prec_scale=pa.bool_(),
    auto_increment_=pa.bool_(),
    local_type_name_=_TEXT,
    minimum_scale_=pa.int32(),
    maximum_scale_=pa.int32(),
    sql_data_type=pa.int32(),
    datetime_subcode_=pa.int32(),
    num_prec_radix_=pa.int32(),
    interval_precision_=pa.int32(),
)
EMPTY: Final[dict[str, pa.Schema]] = {
    "CommandGetPrimaryKeys": _schema(
        catalog_name_=_TEXT,
        db_schema_name_=_TEXT,
        table_name=_TEXT,
        column_name=_TEXT,
        key_sequence=pa.int32(),
        key_name_=_TEXT,
    ),
    "CommandGetExportedKeys": _KEYS,
    "CommandGetImportedKeys": _KEYS,
    "CommandGetCrossReference": _KEYS,
    "CommandGetXdbcTypeInfo": _TYPES,
}
"""What there is none of: tables of streams have no keys that are unique, and types are DuckDB's."""
_TABLES: Final = _schema(
    catalog_name_=_TEXT, db_schema_name_=_TEXT, table_name=_TEXT, table_type=_TEXT, table_schema=pa.binary()
)


def sql_info(wanted: Sequence[int]) -> pa.Table:
    """Of what was asked for that which is known; of nothing, all."""
    known = [number for number in (wanted or _SERVER) if number in _SERVER]
    values = [_SERVER[number] for number in known]
    places: list[list[Any]] = [[] for _ in range(_INFO.field("value").type.num_fields)]
    codes, offsets = [], []
    for value in values:
        code = 0 if isinstance(value, str) else 1 if isinstance(value, bool) else 2
        codes.append(code)
        offsets.append(len(places[code]))
        places[code].append(value)
    kind = _INFO.field("value").type
    union = pa.UnionArray.from_dense(
        pa.array(codes, pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(place, kind.field(number).type) for number, place in enumerate(places)],
        [kind.field(number).name for number in range(kind.num_fields)],
    )
    return pa.Table.from_arrays([pa.array(known, pa.uint32()), union], schema=_INFO)


def catalogs() -> pa.Table:
    return pa.table([[CATALOG]], schema=_schema(catalog_name=_TEXT))


def table_types() -> pa.Table:
    return pa.table([[TABLE]], schema=_schema(table_type=_TEXT))


def namespaces(names: Iterable[str]) -> pa.Table:
    found = sorted(set(names))
    return pa.table([[CATALOG] * len(found), found], schema=_schema(catalog_name_=_TEXT, db_schema_name=_TEXT))


def tables(found: Sequence[tuple[str, str, bytes | None]], *, with_schema: bool) -> pa.Table:
    """Namespace, name, and the schema as Flight SQL wants it."""
    count = len(found)
    columns: list[list[Any]] = [
        [CATALOG] * count,
        [namespace for namespace, _, _ in found],
        [name for _, name, _ in found],
        [TABLE] * count,
        [schema for _, _, schema in found],
    ]
    fields = [*_TABLES][: 5 if with_schema else 4]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=False)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def like(pattern: str, text: str) -> bool:
    """SQL's LIKE."""
    parts = {"%": ".*", "_": "."}
    return re.fullmatch("".join(parts.get(each, re.escape(each)) for each in pattern), text, re.DOTALL) is not None
