"""Shapes that grow with the schemas of their keys, by a topic's setting `lakestream.key.format`: as `growing` has it
for values, in a shape of the keys alone, whose columns are then the fields of one struct. Pure.

How the text of a JSON key was written is not kept: keys are in `_key`, whatever their columns are.
"""

from collections.abc import Callable, Iterable

import msgspec

from lakestream.schemas.growing import grown, settled
from lakestream.schemas.mapping import FIRST_VALUE_ID
from lakestream.schemas.mapping.json import FORMAT
from lakestream.table.shape import KEY_COLUMN, SYSTEM_NAMES, TableColumn, TableShape, TypedKey, ValueSchema, key_shape


def settled_keys(
    shape: TableShape, latest: ValueSchema | None, value_format: str, last_id: int, taken: frozenset[str]
) -> TableShape:
    """As `settled`. No column of a table's owner has the name of one within the key."""
    return _with_keys(shape, lambda keys, last: settled(keys, latest, value_format, last, frozenset()), last_id)


def grown_keys(
    shape: TableShape, schemas: Iterable[ValueSchema], value_format: str, last_id: int, taken: frozenset[str]
) -> TableShape:
    """As `grown`."""
    return _with_keys(shape, lambda keys, last: grown(keys, schemas, value_format, last, frozenset()), last_id)


def _with_keys(shape: TableShape, grow: Callable[[TableShape, int], TableShape], last_id: int) -> TableShape:
    column = next((each for each in shape.columns if each.name == KEY_COLUMN), None)
    field_id = max(FIRST_VALUE_ID, last_id + 1)
    before = key_shape(shape)
    after = grow(before, last_id if column else field_id)
    if after == before:
        return shape
    below = tuple(each for each in after.columns if each.content != FORMAT.content)
    if column is None:
        column = TableColumn(field_id, KEY_COLUMN, "struct")
        values = [each for each in shape.columns if each.name not in SYSTEM_NAMES]
        others = [each for each in shape.columns if each.name in SYSTEM_NAMES]
        columns = (*values, *([column] if below else []), *others)
    else:
        columns = shape.columns
    filled = msgspec.structs.replace(column, below=below)
    key = TypedKey(after.codec, after.schemas, after.plain_schema_id)
    return msgspec.structs.replace(
        shape, columns=tuple(filled if each.name == KEY_COLUMN else each for each in columns), key=key
    )
