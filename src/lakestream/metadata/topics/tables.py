"""Which table a topic is. Pure.

Topic names may have dots, dashes and capitals; catalogs and engines disagree on all three: some split at dots, some
fold case, some know lower case only. So a table's name is always a plain lower case SQL identifier, one word that every
engine takes as it is. Two topics may then ask for one name (`a.b` and `a_b`, `Orders` and `orders`): whose table is
made first has it, the other's carries the beginning of its topic's id. A table keeps the name it was given.
Words that SQL reserves are left as they are: engines reserve different ones, and all of them know quotes.
"""

import re
from typing import Final
from uuid import UUID

from lakestream.metadata.names.rows import Namespace, TableName

DEFAULT_NAMESPACE: Final[Namespace] = ("default",)
MAX_NAME_LENGTH: Final = 230
"""So that whatever is hung on it stays within the 255 that Glue allows."""
_FOREIGN: Final = re.compile(r"[^a-z0-9_]")
_WORD: Final = re.compile(rf"[a-z_][a-z0-9_]{{0,{MAX_NAME_LENGTH - 1}}}")
_LEVELS: Final = 2


def table_name(topic: str, alias: str = "") -> TableName:
    """The name that a topic's table asks for: `alias` if its owner chose one (see `check_alias`)."""
    if alias:
        *namespace, name = alias.split(".")
        return TableName(tuple(namespace) or DEFAULT_NAMESPACE, name)
    name = _FOREIGN.sub("_", topic.lower())
    return TableName(DEFAULT_NAMESPACE, (f"t_{name}" if name[:1].isdigit() else name)[:MAX_NAME_LENGTH])


def value_subject(topic: str, chosen: str = "") -> str:
    """Of the schemas of a topic's values: as Confluent's serializers name it, unless its owner chose one."""
    return chosen or f"{topic}-value"


def key_subject(topic: str, chosen: str = "") -> str:
    """The same of a topic's keys."""
    return chosen or f"{topic}-key"


def clashing_name(name: TableName, topic_id: UUID) -> TableName:
    """For the table of a topic whose name is another's."""
    return TableName(name.namespace, f"{name.name}_{topic_id.hex[:8]}")


def detached_name(name: str, topic_id: UUID) -> str:
    """The name that outlives the topic; also the folder of its table."""
    return f"{name.removesuffix(f'_{topic_id.hex[:8]}')}__{topic_id.hex[:8]}"


def check_alias(text: str) -> str:
    """The text, if it can be an alias or is empty. Raises ValueError with what an alias is."""
    words = text.split(".")
    if text and not (len(words) <= _LEVELS and all(_WORD.fullmatch(word) for word in words)):
        raise ValueError("it takes name or namespace.name, of lower case letters, digits and _, no digit first")
    return text
