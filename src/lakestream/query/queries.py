"""Questions and replays, for callers: what every door calls, with the caller's principal.

Raises what a caller can do something about: `QueryRefused`, `QueryLimit`, `UnknownTable`, `NotAuthorized`,
`OffsetOutOfRange`, `CitationRefused`, `NoLongerThere`, `Overloaded`, `Unavailable`.
"""

import asyncio
import datetime as dt
from collections.abc import Collection, Coroutine, Mapping
from typing import Any, Final

import msgspec

from lakestream.access import Principal
from lakestream.errors import NoLongerThere, QueryLimit, QueryRefused, RequestError, StorageError, UnknownTable
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.topics.tables import DEFAULT_NAMESPACE
from lakestream.metrics import QueryMetrics
from lakestream.query.citations import Citation, CitedTable, check, signed
from lakestream.query.held import HeldAnswers
from lakestream.query.looking import Found, Seen, Tables
from lakestream.query.messages import (
    AnswerFormat,
    Done,
    Examine,
    Examined,
    Failed,
    Limits,
    NamedTable,
    RunQuery,
    SchemasNeeded,
)
from lakestream.query.processes import QueryProcess, QueryProcesses, raise_failure
from lakestream.query.questions import NOW, AsOf, QueryAnswer, Question
from lakestream.query.settings import QuerySettings
from lakestream.query.sources import Relation
from lakestream.runtime import Clock

_CATALOG: Final = "lakestream"
_WATCHDOG: Final = 3
"""How much longer than a query may run its process waits before it ends itself."""
_LEARNINGS: Final = 2
_ENDS: Final = "SELECT _stream_partition AS p, min(_offset) AS o FROM t WHERE _timestamp >= ? GROUP BY ALL"


class Queries:
    """`cluster` and `key` sign citations. The processes stay the caller's to close."""

    def __init__(
        self,
        tables: Tables,
        processes: QueryProcesses,
        settings: QuerySettings,
        clock: Clock,
        *,
        cluster: str,
        key: bytes,
        metrics: QueryMetrics,
    ) -> None:
        self._tables = tables
        self._processes = processes
        self._settings = settings
        self._clock = clock
        self._cluster = cluster
        self._key = key
        self._metrics = metrics
        self.held: Final = HeldAnswers(settings.answers_bytes)

    @property
    def settings(self) -> QuerySettings:
        return self._settings

    async def ask(self, principal: Principal, question: Question) -> QueryAnswer:
        """Sees everything that was acknowledged before, or what `as_of` says."""
        question.as_of.check()
        for as_of in question.as_of_tables.values():
            as_of.check()
        with self._metrics.measure():
            return await self._within(question, self._ask(principal, question))

    async def parameters(self, text: str) -> tuple[str, ...]:
        """What the query calls its parameters, in its order: numbers, or names."""
        _check_size(text, self._settings)
        async with self._processes.one() as process:
            return (await _examined(process, text)).parameters

    async def replay(
        self, principal: Principal, citation: Citation, form: AnswerFormat = AnswerFormat.JSON
    ) -> QueryAnswer:
        """The same rows once more, or the reason why they are not there any more: never others."""
        check(citation, self._cluster, self._key)
        as_of = {
            cited.name: AsOf(offsets=cited.offsets, since=cited.since)
            if cited.offsets is not None
            else AsOf(snapshot_id=cited.snapshot_id)
            for cited in citation.tables
        }
        question = Question(
            citation.query, citation.parameters, as_of_tables=as_of, max_rows=citation.max_rows, format=form
        )
        with self._metrics.measure():
            answer = await self._within(question, self._ask(principal, question, citation))
        if answer.citation.digest != citation.digest:
            raise NoLongerThere(_why_other(citation, answer.citation))
        return QueryAnswer(answer.columns, answer.body, citation)

    async def _within(self, question: Question, work: Coroutine[Any, Any, QueryAnswer]) -> QueryAnswer:
        timeout_ms = min(question.timeout_ms or self._settings.timeout_ms, self._settings.timeout_ms)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await work
        except TimeoutError:
            raise QueryLimit(
                f"the query took longer than {timeout_ms} ms and was stopped: filter by _timestamp, _offset or "
                "_stream_partition, which leaves files unread, or aggregate less"
            ) from None

    async def _ask(self, principal: Principal, question: Question, cited: Citation | None = None) -> QueryAnswer:
        _check_size(question.query, self._settings)
        time = dt.datetime.fromtimestamp(self._clock.now_ms() / 1000, dt.UTC).isoformat(timespec="milliseconds")
        async with self._processes.one() as process:
            examined = await _examined(process, question.query)
            found = await self._found(principal, examined)
            if cited is not None:
                _check_same(cited, found)
            raw: frozenset[str] = frozenset()
            for _ in range(_LEARNINGS):
                seen = await self._seen(principal, question, found, process, raw)
                reply = await process.ask(self._run(question, found, seen))
                if not isinstance(reply, SchemasNeeded):
                    break
                topic_id = str(reply.topic_id)
                if not await self._tables.cut(reply.topic_id):
                    raw |= {topic_id}
            else:
                raw = frozenset(str(each.table_id) for each in found.values())
                seen = await self._seen(principal, question, found, process, raw)
                reply = await process.ask(self._run(question, found, seen))
        done = _done(reply)
        citation = Citation(
            cluster=self._cluster,
            query=question.query,
            parameters=question.parameters,
            tables=tuple(dict.fromkeys(_cited(each, done) for each in seen.values())),
            time=time.replace("+00:00", "Z"),
            max_rows=self._most_rows(question),
            row_count=done.row_count,
            truncated=done.truncated,
            repeatable=not examined.volatile,
            digest=f"sha256:{done.digest}",
        )
        return QueryAnswer(done.columns, done.body, signed(citation, self._key))

    async def _found(self, principal: Principal, examined: Examined) -> dict[NamedTable, Found]:
        """The tables by what the query calls them. A name may be of a part of the query instead."""
        found: dict[NamedTable, Found] = {}
        for named in examined.tables:
            is_local = not named.namespace and named.name.lower() in examined.local_names
            try:
                found[named] = await self._tables.find(principal, _name(named))
            except UnknownTable:
                if not is_local:
                    raise
        return found

    async def _seen(
        self,
        principal: Principal,
        question: Question,
        found: Mapping[NamedTable, Found],
        process: QueryProcess,
        raw: frozenset[str],
    ) -> dict[NamedTable, Seen]:
        _check_names(question, found.values())
        by_id: dict[tuple[str, AsOf], Seen] = {}
        seen: dict[NamedTable, Seen] = {}
        for named, table in found.items():
            as_of = _as_of(question, table, len({each.table_id for each in found.values()}))
            key = str(table.table_id), as_of
            if key not in by_id:
                if as_of.time is not None and table.topic is not None:
                    as_of = await self._until(principal, table, as_of.time, as_of.since, process)
                is_raw = str(table.table_id) in raw
                by_id[key] = await self._tables.at(
                    principal, table, as_of, raw=is_raw, by_key=question.newest is not None
                )
            seen[named] = by_id[key]
        return seen

    async def _until(
        self, principal: Principal, table: Found, time: str, since: tuple[int, ...] | None, process: QueryProcess
    ) -> AsOf:
        """The offsets of each partition before its first record of that time or later."""
        seen = await self._tables.at(principal, table, NOW, raw=True)
        run = RunQuery(
            _ENDS, (_moment(time),), [Relation("default", "t", seen.rows)], AnswerFormat.JSON, self._limits(1_000_000)
        )
        done = _done(await process.ask(run))
        ends = [*(seen.cited.offsets or ())]
        for each in msgspec.json.decode(done.body):
            ends[each["p"]] = each["o"]
        return AsOf(offsets=tuple(ends), since=since)

    def _run(self, question: Question, found: Mapping[NamedTable, Found], seen: Mapping[NamedTable, Seen]) -> RunQuery:
        names = {(each.namespace.lower() or "default", each.name.lower()): each for each in found}
        relations = [Relation(namespace, each.name, seen[each].rows) for (namespace, _), each in names.items()]
        limits = self._limits(self._most_rows(question))
        return RunQuery(question.query, question.parameters, relations, question.format, limits, question.newest)

    def _limits(self, rows: int) -> Limits:
        settings = self._settings
        watchdog_s = settings.timeout_ms * _WATCHDOG / 1000
        return Limits(settings.threads, settings.memory_bytes, rows, settings.answer_bytes, watchdog_s)

    def _most_rows(self, question: Question) -> int:
        asked = self._settings.max_rows if question.max_rows is None else question.max_rows
        return min(asked, self._settings.most_rows)


async def _examined(process: QueryProcess, text: str) -> Examined:
    reply = await process.ask(Examine(text))
    if isinstance(reply, Failed):
        raise_failure(reply.kind, reply.message)
    assert isinstance(reply, Examined)
    return reply


def _done(reply: object) -> Done:
    if isinstance(reply, Failed):
        raise_failure(reply.kind, reply.message)
    if not isinstance(reply, Done):
        raise StorageError("the tail of a stream has values of schemas that nobody knows")
    return reply


def _cited(seen: Seen, done: Done) -> CitedTable:
    return seen.cited if done.since is None else msgspec.structs.replace(seen.cited, since=done.since)


def _check_size(text: str, settings: QuerySettings) -> None:
    size_bytes = len(text.encode(errors="replace"))
    if size_bytes > settings.query_bytes:
        raise QueryRefused(f"a query has at most {settings.query_bytes} bytes, and this one has {size_bytes}")


def _name(named: NamedTable) -> TableName:
    """Raises `UnknownTable`. Catalogs know lower case names only."""
    if named.catalog and named.catalog.lower() != _CATALOG:
        raise UnknownTable(
            f"there is no catalog {named.catalog[:100]!r}: a table is called name, namespace.name or "
            f"{_CATALOG}.namespace.name"
        )
    namespace = tuple(named.namespace.split(".")) if named.namespace else DEFAULT_NAMESPACE
    return TableName(namespace, named.name)


def _as_of(question: Question, table: Found, table_count: int) -> AsOf:
    own = question.as_of_tables.get(str(table.name)) or question.as_of_tables.get(table.name.name)
    if own is not None:
        return own
    if table_count > 1 and (question.as_of.offsets is not None or question.as_of.snapshot_id is not None):
        raise RequestError(
            "the query reads several tables, whose offsets and snapshots are their own: say as_of.tables.<name>"
        )
    return question.as_of


def _check_names(question: Question, found: Collection[Found]) -> None:
    known = {name for each in found for name in (str(each.name), each.name.name)}
    for name in question.as_of_tables:
        if name not in known:
            raise RequestError(f"as_of names the table {name[:100]!r}, which the query does not read")


def _moment(text: str) -> str:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise RequestError(f"as_of.time is a time like 2026-01-31T12:00:00Z, not {text[:50]!r}") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)).isoformat()


def _check_same(cited: Citation, found: Mapping[NamedTable, Found]) -> None:
    """Raises `NoLongerThere` if a name that the citation has is another table's by now."""
    present = {str(each.name): str(each.table_id) for each in found.values()}
    for table in cited.tables:
        if present.get(table.name) != table.table_id:
            raise NoLongerThere(
                f"the table {table.name} of that answer was deleted; what has its name now is another one"
            )


def _why_other(citation: Citation, found: Citation) -> str:
    told = (
        f"the rows of that answer are not there any more as they were: it had {citation.row_count}, and the same "
        f"question has {found.row_count} now"
    )
    if not citation.repeatable:
        return f"{told}. The query has functions that answer differently each time, so no answer of it can be repeated"
    return (
        f"{told}. Since {citation.time} retention, compaction, a DELETE or an UPDATE has taken or changed rows below "
        "its offsets; or the answer depends on the order in which rows are read (LIMIT without ORDER BY, sums of "
        "floating point numbers)"
    )
