"""One query in a DuckDB of its own, which has nothing but the relations of that query and cannot get at anything else.

What confines it: no file, network or extension access, nothing looked up among Python's variables, no settings to
change, and statements that `examining` has passed. Nothing is left of a query when it is done.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import duckdb
import msgspec

from lakestream.errors import LakestreamError, QueryLimit, QueryRefused, Unavailable
from lakestream.query.messages import Done, Limits, RunQuery
from lakestream.query.sources import Relation, Source, StreamSource
from lakestream.query.worker.encoding import Column, encode, unique_names
from lakestream.query.worker.examining import examine
from lakestream.query.worker.finding import find
from lakestream.query.worker.reading import BATCH_ROWS, Loop, SnapshotDataset, StreamDataset

CATALOG: Final = "lakestream"
_DEFAULT: Final = "default"
_SWITCHES: Final[dict[str, str | bool | int | float | list[str]]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "preserve_insertion_order": "true",
}
_MESSAGE_CHARACTERS: Final = 2_000


class Stopping:
    """Stops the query that runs, if one does, from another thread: while DuckDB works Python hears no signal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop: Callable[[], object] | None = None

    def now(self) -> None:
        with self._lock:
            if self._stop is not None:
                self._stop()

    @contextmanager
    def stops(self, stop: Callable[[], object]) -> Iterator[None]:
        with self._lock:
            self._stop = stop
        try:
            yield
        finally:
            with self._lock:
                self._stop = None


def run(request: RunQuery, loop: Loop, stopping: Stopping) -> Done:
    """Raises `QueryRefused`, `QueryLimit`, `UnknownSchemas`, what reading raises."""
    examine(request.text)
    loop.failure = None
    since = None
    rows: Sequence[object] = [_dataset(relation.rows, loop) for relation in request.relations]
    if request.newest is not None:
        found, since = find(request.relations, request.newest, loop, stopping)
        rows = [found]
    with _connection(request.limits) as connection, stopping.stops(connection.interrupt), _told(request.limits, loop):
        _register(connection, request.relations, rows)
        connection.execute("SET lock_configuration=true")
        connection.execute(request.text, request.parameters or None)
        names = unique_names([each[0] for each in connection.description or ()])
        kinds = [str(each[1]) for each in connection.description or ()]
        columns = [Column(name, kind) for name, kind in zip(names, kinds, strict=True)]
        reader = connection.to_arrow_reader(BATCH_ROWS)
        done = encode(
            columns, reader, request.format, most_rows=request.limits.rows, most_bytes=request.limits.answer_bytes
        )
        return msgspec.structs.replace(done, since=since)


@contextmanager
def _connection(limits: Limits) -> Iterator[duckdb.DuckDBPyConnection]:
    config = {**_SWITCHES, "threads": str(limits.threads), "memory_limit": f"{limits.memory_bytes}B"}
    connection = duckdb.connect(":memory:", config=config)
    try:
        connection.execute("SET TimeZone='UTC'")
        yield connection
    finally:
        connection.close()


def _dataset(rows: Source, loop: Loop) -> StreamDataset | SnapshotDataset:
    return StreamDataset(rows, loop) if isinstance(rows, StreamSource) else SnapshotDataset(rows)


def _register(connection: duckdb.DuckDBPyConnection, relations: Sequence[Relation], rows: Sequence[object]) -> None:
    connection.execute(f"ATTACH ':memory:' AS {CATALOG}")
    for namespace in dict.fromkeys((_DEFAULT, *(relation.namespace for relation in relations))):
        connection.execute(f"CREATE SCHEMA {CATALOG}.{_quoted(namespace)}")
    for number, (relation, each) in enumerate(zip(relations, rows, strict=True)):
        connection.register(f"__rows_{number}", each)
        name = f"{CATALOG}.{_quoted(relation.namespace)}.{_quoted(relation.name)}"
        connection.execute(f"CREATE VIEW {name} AS FROM __rows_{number}")
    connection.execute(f"USE {CATALOG}.{_quoted(_DEFAULT)}")


@contextmanager
def _told(limits: Limits, loop: Loop) -> Iterator[None]:
    """Errors as they are to be told."""
    try:
        yield
    except (duckdb.Error, RuntimeError) as error:
        if loop.failure is not None:
            raise loop.failure from error
        raise _as_ours(error, limits) from error


def _as_ours(error: Exception, limits: Limits) -> LakestreamError:
    told = str(error)[:_MESSAGE_CHARACTERS]
    if isinstance(error, duckdb.OutOfMemoryException):
        return QueryLimit(
            f"the query needs more than {limits.memory_bytes >> 20} MiB of memory: filter or aggregate earlier, "
            "or read fewer columns"
        )
    if isinstance(error, duckdb.InterruptException) or not isinstance(error, duckdb.Error):
        return QueryLimit("the query was stopped")
    if isinstance(error, duckdb.InternalException | duckdb.FatalException | duckdb.IOException):
        return Unavailable(f"the query failed in DuckDB: {told}")
    return QueryRefused(f"the query cannot be run: {told}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
