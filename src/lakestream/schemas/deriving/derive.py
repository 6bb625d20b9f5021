"""One schema for the columns of a table, in the format that its owner wants."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lakestream.errors import InvalidSchema
from lakestream.schemas.codecs.avro.codec import CODEC as AVRO_CODEC
from lakestream.schemas.deriving.avro import avro_text
from lakestream.schemas.deriving.avro_editing import edited_avro
from lakestream.table.shape import TableColumn

_DERIVE: Final[Mapping[str, Callable[[str, Sequence[TableColumn]], str]]] = {"AVRO": avro_text}
_EDIT: Final[Mapping[str, Callable[[str, Sequence[TableColumn], Sequence[TableColumn]], str]]] = {"AVRO": edited_avro}
_CODECS: Final = {"AVRO": AVRO_CODEC}
FORMATS: Final = tuple(_DERIVE)
"""Those that a schema can be derived in."""


def derive(kind: str, name: str, columns: Sequence[TableColumn]) -> str:
    """The text of a schema whose values have just these columns; `name` is that of the record. Raises `InvalidSchema`
    with a sentence for a column that the format has no word for."""
    if not columns:
        raise InvalidSchema("a stream needs a column for its values")
    return _DERIVE[kind](name, columns)


def edited(kind: str, text: str, before: Sequence[TableColumn], after: Sequence[TableColumn]) -> str:
    """The next schema after `text`, of a table whose columns were `before` and shall be `after`. Raises
    `InvalidSchema` with a sentence."""
    edit = _EDIT.get(kind)
    if edit is None:
        raise InvalidSchema(
            f"columns of values in {kind} change with their schema: register its next version, and the table follows"
        )
    return edit(text, before, after)


def codec_of(kind: str) -> str:
    """What fills the columns of such a table with values behind the id of their schema."""
    return _CODECS[kind]


def record_name(topic: str) -> str:
    """For the record of a topic's values, which every format takes."""
    word = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    return f"t_{word}" if word[:1].isdigit() else word
