"""What the door and the process that runs a query say to each other.

Requests are pickled: the process believes the door. Answers are MessagePack: the door does not believe a process in
which somebody's SQL ran. Each is a length of four bytes, big endian, and the message.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

from lakestream.query.sources import Relation

LENGTH_BYTES: Final = 4
Value = str | int | float | bool | None


class AnswerFormat(StrEnum):
    JSON = "json"
    NDJSON = "ndjson"
    ARROW = "arrow"


@dataclass(frozen=True, slots=True)
class Limits:
    """`watchdog_s`: the process ends itself after so long, in case nobody else does."""

    threads: int
    memory_bytes: int
    rows: int
    answer_bytes: int
    watchdog_s: float


@dataclass(frozen=True, slots=True)
class KeySearch:
    """Of the one stream that is read only the newest rows with this key are looked for, from the end backwards, until
    there are so many: the query asks for no others."""

    key: bytes
    limit: int


@dataclass(frozen=True, slots=True)
class Examine:
    """Which tables does this text read? Answered by `Examined` or `Failed`."""

    text: str


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Answered by `Done`, `SchemasNeeded` or `Failed`."""

    text: str
    parameters: Sequence[Value] | dict[str, Value]
    relations: Sequence[Relation]
    format: AnswerFormat
    limits: Limits
    newest: "KeySearch | None" = None


Request = Examine | RunQuery


class NamedTable(msgspec.Struct, frozen=True, array_like=True, order=True):
    """As the query names it; what it leaves out is empty."""

    catalog: str
    namespace: str
    name: str


class Examined(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`volatile`: functions in it that answer differently each time."""

    tables: tuple[NamedTable, ...]
    local_names: tuple[str, ...]
    """Names that the query gives to parts of itself."""
    volatile: tuple[str, ...]
    parameters: tuple[str, ...] = ()
    """Numbers or names, as the query has them, in order."""


class Done(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`body`: the rows in the format asked for. `digest`: of the rows, in whatever order. `since`: by partition, from
    where on rows were looked at; None: as it was asked."""

    columns: tuple[tuple[str, str], ...]
    body: bytes
    row_count: int
    truncated: bool
    digest: str
    since: tuple[int, ...] | None = None


class SchemasNeeded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The tail of this stream names schemas that its table does not know yet."""

    topic_id: UUID


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`kind`: the name of an error in `lakestream.errors`."""

    kind: str
    message: str


Reply = Examined | Done | SchemasNeeded | Failed
REPLIES: Final = msgspec.msgpack.Decoder(Reply)
