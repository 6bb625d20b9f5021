"""What can be asked, and what comes back."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from lakestream.errors import RequestError
from lakestream.query.citations import Citation
from lakestream.query.messages import AnswerFormat, KeySearch, Value


class AsOf(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a query sees of a stream, one of these; none: everything that was acknowledged before it was asked.

    `snapshot_id`: exactly that snapshot of the table. `offsets`: by partition the first offset that it does not see.
    `time`: of each partition what is before its first record of that time or later. `group`: what it has read."""

    snapshot_id: str | int | None = None
    offsets: tuple[int, ...] | None = None
    time: str | None = None
    group: str | None = None
    since: tuple[int, ...] | None = None
    """Beside one of the others: by partition the first offset that it does see."""

    def check(self) -> None:
        kinds = [name for name in self.__struct_fields__ if name != "since"]
        given = [name for name in kinds if getattr(self, name) is not None]
        if len(given) > 1:
            raise RequestError(f"as_of takes one of {', '.join(kinds)}, not {' and '.join(given)}")
        if self.since is not None and self.snapshot_id is not None:
            raise RequestError("as_of takes no since beside a snapshot_id")
        if any(offset < 0 for offset in (*(self.offsets or ()), *(self.since or ()))):
            raise RequestError("as_of.offsets and as_of.since take numbers from 0 on")


NOW = AsOf()


@dataclass(frozen=True, slots=True)
class Question:
    """`as_of`: of all streams that the query reads; `as_of_tables`: of each by its name, before that. `max_rows` and
    `timeout_ms`: None for what is usual. `newest`: what the query is about is found by a key."""

    query: str
    parameters: tuple[Value, ...] | dict[str, Value] = ()
    as_of: AsOf = NOW
    as_of_tables: dict[str, AsOf] = field(default_factory=dict)
    max_rows: int | None = None
    timeout_ms: int | None = None
    format: AnswerFormat = AnswerFormat.JSON
    newest: KeySearch | None = None


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """`body`: the rows in the format asked for; of JSON, an array of objects."""

    columns: tuple[tuple[str, str], ...]
    body: bytes
    citation: Citation

    def facts(self) -> dict[str, Any]:
        """Everything but the rows."""
        return {
            "columns": [{"name": name, "type": kind} for name, kind in self.columns],
            "row_count": self.citation.row_count,
            "truncated": self.citation.truncated,
            "citation": self.citation,
        }
