"""What is made of a stream's rows: columns and keys of the derived table, by its recipe and the stream's shape. Pure.

A derived table's columns keep the field ids that they have in the stream's table, so its schema follows the other's: a
column that is new there is new here, one that is wider is wider. A column never changes its name here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from lakestream.table.shape import SYSTEM_NAMES, Encoding, Kind, TableColumn, TableShape

Transform = Literal["none", "debezium"]

FORMAT: Final = 1
KEY: Final = "_key"
BUCKETS: Final = 16
_KEY_KINDS: Final[frozenset[Kind]] = frozenset(
    ("int", "long", "decimal", "date", "timestamp", "timestamptz", "string", "binary")
)
"""Those that Iceberg can put into buckets."""
_ORDER_KINDS: Final = _KEY_KINDS
_LATEST_COLUMNS: Final = ("_stream_partition", "_offset", "_timestamp", "_key", "_headers", "_value", "_schema_id")
_CHANGE_COLUMNS: Final = ("_stream_partition", "_offset", "_timestamp", "_key")
"""Of a table of change events: the value is the envelope, which is in the stream's table."""
_LETTER_COLUMNS: Final = ("_stream_partition", "_offset", "_timestamp", "_key", "_headers", "_value", "_schema_id")
REASON: Final = "_reason"
DETECTED: Final = "_detected_at"
_LETTER_IDS: Final = 1_000_000
"""Where the ids of columns begin that only dead letters have: no shape comes so far."""
AFTER: Final = "after"
BEFORE: Final = "before"
OPERATION: Final = "op"


class Recipe(msgspec.Struct, frozen=True):
    """`keys`: columns of the derived table that name a row. `order`: the column whose greatest value is the newest
    record; empty: the place in the partition says it."""

    kind: Literal["latest", "dlq"]
    keys: tuple[str, ...]
    order: str = ""
    transform: Transform = "none"
    buckets: int = BUCKETS
    version: int = FORMAT


LETTERS: Final = Recipe("dlq", ("_stream_partition", "_offset"), buckets=0)


@dataclass(frozen=True, slots=True)
class DerivedShape:
    """`columns` say what the table's files have, as those of a stream's table do."""

    recipe: Recipe
    columns: TableShape

    @property
    def keys(self) -> tuple[TableColumn, ...]:
        by_name = {column.name: column for column in self.columns.columns}
        return tuple(by_name[name] for name in self.recipe.keys)


_RECIPES: Final = msgspec.json.Decoder(Recipe)


def recipe_text(recipe: Recipe) -> str:
    return msgspec.json.encode(recipe).decode()


def parse_recipe(text: str) -> Recipe:
    """Raises ValueError."""
    try:
        found = _RECIPES.decode(text)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it is no recipe of a derived table: {error}") from error
    if found.version != FORMAT:
        raise ValueError(f"its recipe has format {found.version}, and this version of lakestream knows {FORMAT}")
    return found


def derived_shape(recipe: Recipe, stream: TableShape) -> DerivedShape:
    """Raises ValueError with a sentence if the stream's columns do not go with the recipe."""
    if recipe.kind == "dlq":
        return DerivedShape(recipe, TableShape((*_log_columns(stream, _LETTER_COLUMNS), *_letter_columns())))
    if recipe.transform == "debezium":
        below = struct_fields(stream, AFTER)
        columns = (*(_plain(column, recipe) for column in below), *_log_columns(stream, _CHANGE_COLUMNS))
    else:
        columns = (
            *(_plain(column, recipe) for column in stream.value_columns),
            *_log_columns(stream, _LATEST_COLUMNS),
        )
    found = {column.name: column for column in columns}
    for name in recipe.keys:
        _check_kind(name, found, _KEY_KINDS, "a key column")
    if recipe.order:
        _check_kind(recipe.order, found, _ORDER_KINDS, "the order column")
    return DerivedShape(recipe, TableShape(columns))


def struct_fields(stream: TableShape, name: str) -> tuple[TableColumn, ...]:
    """Of the image in a change event. Raises ValueError: the values are none."""
    column = next((column for column in stream.value_columns if column.name == name), None)
    if column is None or column.kind != "struct":
        raise ValueError(
            f"its values have no record in the field {name}, as change events of Debezium have: set"
            " lakestream.value.transform=none, or produce with Debezium's converters and their schemas"
        )
    clashes = sorted(SYSTEM_NAMES & {field.name for field in column.below})
    if clashes:
        raise ValueError(f"the captured table has the columns {', '.join(clashes)}, whose names are the log's")
    return column.below


def _check_kind(name: str, found: dict[str, TableColumn], kinds: frozenset[Kind], what: str) -> None:
    if name not in found:
        raise ValueError(f"{name} was to be {what}, and there is none of that name: there are {', '.join(found)}")
    if found[name].kind not in kinds:
        raise ValueError(f"{name} is of type {found[name].kind}, and {what} is one of {', '.join(sorted(kinds))}")


def _plain(column: TableColumn, recipe: Recipe) -> TableColumn:
    """Optional, since not every record has it. Bounds of key columns find rows."""
    is_key = column.name in recipe.keys
    encoding: Encoding = "plain" if is_key and column.encoding == "dictionary" else column.encoding
    return msgspec.structs.replace(
        column, is_required=False, has_statistics=is_key or column.has_statistics, is_full=False, encoding=encoding
    )


def _log_columns(stream: TableShape, names: tuple[str, ...]) -> Iterator[TableColumn]:
    """Rows lie by key: what bounds of offsets tell of a sorted file is not true of these."""
    by_name = {column.name: column for column in stream.columns}
    for name in names:
        column = by_name[name]
        is_offset = name == "_offset"
        yield msgspec.structs.replace(
            column, has_statistics=column.has_statistics and not is_offset, is_full=column.is_full and not is_offset
        )


def _letter_columns() -> tuple[TableColumn, ...]:
    return (
        TableColumn(_LETTER_IDS, REASON, "string", False, "dictionary"),
        TableColumn(_LETTER_IDS + 1, DETECTED, "timestamptz", False, "delta"),
    )
