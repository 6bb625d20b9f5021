"""One schema for the columns of a table, in the format that its owner wants."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lakestream.errors import InvalidSchema
from lakestream.schemas.deriving.avro import avro_text
from lakestream.schemas.deriving.avro_editing import edited_avro
from lakestream.schemas.deriving.json import json_text
from lakestream.schemas.deriving.json_editing import edited_json
from lakestream.schemas.deriving.protobuf import protobuf_text
from lakestream.schemas.deriving.protobuf_editing import edited_protobuf
from lakestream.table.shape import TableColumn

_DERIVE: Final[Mapping[str, Callable[[str, Sequence[TableColumn]], str]]] = {
    "AVRO": avro_text,
    "JSON": json_text,
    "PROTOBUF": protobuf_text,
}
_EDIT: Final[Mapping[str, Callable[[str, Sequence[TableColumn], Sequence[TableColumn]], str]]] = {
    "AVRO": edited_avro,
    "JSON": edited_json,
    "PROTOBUF": edited_protobuf,
}
FORMATS: Final = tuple(_DERIVE)
"""Those that a schema can be derived in."""


def derive(kind: str, name: str, columns: Sequence[TableColumn]) -> str:
    """The text of a schema whose values have just these columns; `name` is that of the record. Raises `InvalidSchema`
    with a sentence for a column that the format has no word for."""
    if not columns:
        raise InvalidSchema("a stream needs a column for its values")
    return _DERIVE[kind](name, columns)


def edited(kind: str, text: str, before: Sequence[TableColumn], after: Sequence[TableColumn]) -> str:
    """The next schema after `text`, of a table whose columns were `before` and shall be `after`. Blocking. Raises
    `InvalidSchema` with a sentence."""
    return _EDIT[kind](text, before, after)


def record_name(topic: str) -> str:
    """For the record of a topic's values, which every format takes."""
    word = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    return f"t_{word}" if word[:1].isdigit() else word
