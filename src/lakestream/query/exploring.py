"""Streams as an agent asks about them: which there are, what is in one, a key's newest record and its history, a text,
and what is new. Every answer that has records cites them; all of it is done by queries.

Records of a key are found by filters of keys, in one query. What else looks for few records in a long history goes
backwards through it in windows of offsets, each larger than the one before, and stops when it has enough. `changes`
goes forwards from a cursor, a bounded number of offsets at a time.
"""

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from lakestream.access import Principal
from lakestream.errors import OffsetOutOfRange, RequestError
from lakestream.metadata.topics.tables import table_name
from lakestream.query.citations import Citation
from lakestream.query.looking import Found, StreamFacts, Tables
from lakestream.query.messages import KeySearch, Value
from lakestream.query.queries import Queries
from lakestream.query.questions import NOW, AsOf, Question
from lakestream.table.shape import KEY_COLUMN, TableShape

MOST_RECORDS: Final = 1_000
MOST_WAIT_S: Final = 30.0
_WINDOW: Final = 100_000
"""Offsets of a partition that are looked through first."""
_GROWTH: Final = 8
_STEP: Final = 100_000
"""Offsets of a partition that `changes` looks through at a time."""
_LOOK_S: Final = 0.1
_SAMPLES: Final = 3
_NEWEST: Final = 'ORDER BY "timestamp" DESC NULLS LAST, "offset" DESC, partition'
_TEXT_KINDS: Final = frozenset({"string"})
_COLUMNS: Final = {
    "partition": "INTEGER",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "key": "VARCHAR",
    "columns": "",
    "value": "VARCHAR",
    "deleted": "BOOLEAN",
}
"""Of records, and their types. `columns` differs from stream to stream."""


@dataclass(frozen=True, slots=True)
class Records:
    """`citations`: of the queries that gave these records. `more`: there may be others that were not looked at."""

    records: list[dict[str, Any]]
    citations: list[Citation] = field(default_factory=list)
    more: bool = False


@dataclass(frozen=True, slots=True)
class NewRecords:
    """`cursor`: where to go on."""

    records: Records
    cursor: str


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    table_id: str
    offsets: tuple[int, ...]


class Exploring:
    def __init__(self, tables: Tables, queries: Queries) -> None:
        self._tables = tables
        self._queries = queries

    async def streams(self, principal: Principal) -> list[dict[str, Any]]:
        """Those that the caller may describe."""
        return [
            {
                "stream": topic.name,
                "table": str(table_name(topic.name, topic.options.table_name)),
                "partitions": topic.partitions,
                "values": topic.options.value_format,
            }
            for topic in await self._tables.listed(principal)
        ]

    async def describe(self, principal: Principal, stream: str) -> tuple[StreamFacts, Records]:
        """What it is, and some of its newest records."""
        found = await self._tables.stream(principal, stream)
        facts = await self._tables.facts(found)
        sample = await self._backwards(principal, found, facts, "true", (), _SAMPLES)
        return facts, sample

    async def history(self, principal: Principal, stream: str, key: str, limit: int) -> Records:
        """The newest records with that key, the newest first: within a partition by offset, between them by time."""
        found = await self._tables.stream(principal, stream)
        shape = await self._tables.shape(found)
        text = f"{_select(found, shape)} WHERE _key = encode(?) {_NEWEST} LIMIT {_checked(limit)}"
        newest = KeySearch(key.encode(), limit)
        rows, citation = await self._rows(principal, found, text, (key,), NOW, newest)
        since = citation.tables[0].since or ()
        return Records(rows, [citation], more=any(since) or len(rows) == limit)

    async def search(self, principal: Principal, stream: str, text: str, limit: int) -> Records:
        """The newest records that have the text in a column of text, or in a value or key that is text, in whatever
        case."""
        if not text:
            raise RequestError("say which text to look for")
        found = await self._tables.stream(principal, stream)
        facts = await self._tables.facts(found)
        columns = [_quoted(each.name) for each in facts.shape.value_columns if each.kind in _TEXT_KINDS]
        places = [*columns, "TRY(decode(_value))", "TRY(decode(_key))"]
        condition = " OR ".join(f"contains(lower({place}), lower(?))" for place in places)
        return await self._backwards(principal, found, facts, f"({condition})", (text,) * len(places), _checked(limit))

    async def changes(
        self,
        principal: Principal,
        stream: str,
        *,
        cursor: str = "",
        where: str = "",
        limit: int = 100,
        wait_s: float = 0.0,
        from_start: bool = False,
    ) -> NewRecords:
        """What is new since the cursor, by partition and offset; without one, from now on, or from the beginning. Waits
        for something that fits."""
        found = await self._tables.stream(principal, stream)
        limit = _checked(limit)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + min(max(wait_s, 0.0), MOST_WAIT_S)
        ends = await self._tables.ends(found)
        at = _start(found, cursor, ends, from_start=from_start)
        facts = await self._tables.facts(found)
        while True:
            until = tuple(min(end, start + _STEP) for start, end in zip(at, ends, strict=True))
            if until != at:
                records, at = await self._between(principal, found, facts, where, limit, at, until)
                has_more = at != ends
                if records.records or (has_more and loop.time() >= deadline_s):
                    return NewRecords(Records(records.records, records.citations, has_more), _cursor(found, at))
                if has_more:
                    continue
            if loop.time() >= deadline_s:
                return NewRecords(Records([]), _cursor(found, at))
            await asyncio.sleep(_LOOK_S)
            ends = await self._tables.ends(found)
            at = (*at, *(0 for _ in ends[len(at) :]))

    async def _between(
        self,
        principal: Principal,
        found: Found,
        facts: StreamFacts,
        where: str,
        limit: int,
        since: tuple[int, ...],
        until: tuple[int, ...],
    ) -> tuple[Records, tuple[int, ...]]:
        """The first records of a window, and where to go on after them."""
        order = f'ORDER BY partition, "offset" LIMIT {limit + 1}'
        text = f"{_select(found, facts.shape)} WHERE (\n{where or 'true'}\n) {order}"
        rows, citation = await self._rows(principal, found, text, (), AsOf(offsets=until, since=since))
        if len(rows) <= limit:
            return Records(rows, [citation] if rows else []), until
        kept = rows[:limit]
        last = kept[-1]
        # What comes before in this order was told; of the partitions after it nothing was.
        partition = last["partition"]
        at = (*until[:partition], last["offset"] + 1, *since[partition + 1 :])
        return Records(kept, [citation], more=True), at

    async def _backwards(
        self,
        principal: Principal,
        found: Found,
        facts: StreamFacts,
        condition: str,
        parameters: Sequence[Value],
        limit: int,
    ) -> Records:
        text = f"{_select(found, facts.shape)} WHERE {condition} {_NEWEST} LIMIT {limit}"
        records: list[dict[str, Any]] = []
        citations: list[Citation] = []
        until, width = facts.ends, _WINDOW
        while any(until) and len(records) < limit:
            since = tuple(max(0, end - width) for end in until)
            rows, citation = await self._rows(
                principal, found, text, tuple(parameters), AsOf(offsets=until, since=since)
            )
            records += rows
            citations += [citation] if rows else []
            until, width = since, width * _GROWTH
        return Records(records[:limit], citations, more=any(until))

    async def _rows(
        self,
        principal: Principal,
        found: Found,
        text: str,
        parameters: tuple[Value, ...],
        as_of: AsOf,
        newest: KeySearch | None = None,
    ) -> tuple[list[dict[str, Any]], Citation]:
        question = Question(text, parameters, as_of=as_of, max_rows=MOST_RECORDS + 1, newest=newest)
        answer = await self._queries.ask(principal, question)
        if {**dict(answer.columns), "columns": ""} != _COLUMNS:
            raise RequestError("a condition is one expression, as after WHERE")
        rows: list[dict[str, Any]] = msgspec.json.decode(answer.body)
        return [*map(_record, rows)], answer.citation


def _select(found: Found, shape: TableShape) -> str:
    """Records as an agent reads them: where, when, key, value."""
    key = "coalesce(TRY(decode(_key)), to_base64(_key))"
    if KEY_COLUMN in shape.names:
        key = f"coalesce(to_json({KEY_COLUMN})::VARCHAR, {key})"
    fields = ", ".join(f"{_quoted(each.name)} := {_quoted(each.name)}" for each in shape.value_columns)
    typed = f"CASE WHEN _kind IN (2, 3) THEN struct_pack({fields}) END" if fields else "NULL"
    columns = (
        "_stream_partition AS partition",
        '_offset AS "offset"',
        '_timestamp AS "timestamp"',
        f"{key} AS key",
        f"{typed} AS columns",
        "CASE WHEN _kind <> 2 THEN coalesce(TRY(decode(_value)), to_base64(_value)) END AS value",
        "_kind = 1 AS deleted",
    )
    namespace = ".".join(found.name.namespace)
    return f"SELECT {', '.join(columns)} FROM lakestream.{_quoted(namespace)}.{_quoted(found.name.name)}"


def _record(row: dict[str, Any]) -> dict[str, Any]:
    """The value as one thing: columns, or the JSON that it is, or text."""
    columns, value = row.pop("columns"), row.pop("value")
    if columns is not None:
        return {**row, "value": columns}
    try:
        return {**row, "value": msgspec.json.decode(value) if value is not None else None}
    except (msgspec.DecodeError, RecursionError):
        return {**row, "value": value}


def _checked(limit: int) -> int:
    if not 1 <= limit <= MOST_RECORDS:
        raise RequestError(f"limit is a number from 1 to {MOST_RECORDS}, not {limit}")
    return limit


def _start(found: Found, cursor: str, ends: tuple[int, ...], *, from_start: bool) -> tuple[int, ...]:
    """Raises `RequestError` for a cursor of something else, `OffsetOutOfRange` for one from the future."""
    if not cursor:
        return tuple(0 for _ in ends) if from_start else ends
    try:
        data = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        known = msgspec.json.decode(data, type=_Cursor)
    except (NotBase64, UnicodeError, msgspec.DecodeError) as error:
        raise RequestError("this is no cursor: take the one of the last answer as it is, or leave it out") from error
    if known.table_id != str(found.table_id):
        raise RequestError("this cursor is of another stream, or of one that was deleted: leave it out")
    if len(known.offsets) > len(ends) or any(not 0 <= at <= end for at, end in zip(known.offsets, ends, strict=False)):
        raise OffsetOutOfRange("this cursor is beyond the end of the stream: leave it out")
    return (*known.offsets, *(0 for _ in ends[len(known.offsets) :]))


def _cursor(found: Found, offsets: Sequence[int]) -> str:
    return urlsafe_b64encode(msgspec.json.encode(_Cursor(str(found.table_id), tuple(offsets)))).rstrip(b"=").decode()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
