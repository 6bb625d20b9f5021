"""SQL over the tables with DuckDB, as they are or as they were.

A query of the past reads views of the same names, each of one snapshot and, for a consumer group, of the offsets below
the group's. The snapshot is chosen once per table, so everything a statement reads of a table is one state of it.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import duckdb
from duckdb_extensions import import_extension

from lakestream.cli.console import fail
from lakestream.cli.tables.history import TableHistory
from lakestream.cli.tables.rest import CatalogError, RestTables

_EXTENSIONS: Final = ("avro", "httpfs", "iceberg")
_LEVELS: Final = 2


@dataclass(frozen=True, slots=True)
class Cut:
    """What a query may see of a table: one snapshot, and of each partition the offsets below a bound. A partition that
    `below` lacks is not seen at all; without `below` all of the snapshot is."""

    snapshot_id: int | None
    below: Mapping[int, int] | None = None


def connect(catalog: str) -> duckdb.DuckDBPyConnection:
    """Every table of the catalog, as `lake.<namespace>.<table>`; those of `default` also by name alone."""
    connection = duckdb.connect()
    for name in _EXTENSIONS:
        import_extension(name)
        connection.load_extension(name)
    endpoint = catalog.replace("'", "''")
    try:
        connection.execute(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{endpoint}', AUTHORIZATION_TYPE 'none')")
        connection.execute('USE lake."default"')
    except duckdb.Error as error:
        fail(f"no catalog answers at {catalog}: {str(error).splitlines()[0]}")
    return connection


def cut_off(
    connection: duckdb.DuckDBPyConnection, sql: str, tables: RestTables, cut: Callable[[TableHistory], Cut]
) -> None:
    """Puts a view in the place of each table that the statement names. From then on nothing else is in reach by a plain
    name, so a query cannot mix past and present by accident."""
    done = set()
    for name in _named(sql):
        if len(name) > _LEVELS:
            fail(f"in a query of the past, name the table {'.'.join(name[1:])} without its catalog")
        namespace, table = name if len(name) == _LEVELS else ("default", name[0])
        history = tables.load((namespace, table)) or tables.find(f"{namespace}.{table}".lower())
        if history.name not in done:
            _make_view(connection, history, cut(history))
            done.add(history.name)
    connection.execute('CREATE SCHEMA IF NOT EXISTS memory."default"')
    connection.execute('USE memory."default"')


def incomplete(sql: str, tables: RestTables) -> dict[str, str]:
    """By table, a sentence about each that the statement names and that lacks records which were acked, as the catalog
    tells it now."""
    tree = _parsed(sql)
    found = {}
    for name in [] if tree["error"] else _names(tree):
        try:
            told = tables.properties(("default", *name)[-_LEVELS:])
        except CatalogError:
            continue
        if "lakestream.lag" in told:
            ends = sum(map(int, told["lakestream.end-offsets"].split(",")))
            behind = f"{int(told['lakestream.lag']):,} of {ends:,} records were not in its table yet"
        elif "lakestream.freshness" in told:
            behind = "records that were just acked may not be in its table yet"
        else:
            continue
        found[name[-1]] = (
            f"{name[-1]} is not complete ({told['lakestream.freshness']}): at {told['lakestream.as-of']} {behind}"
        )
    return found


def _named(sql: str) -> list[tuple[str, ...]]:
    """The tables that a query names, each by its parts."""
    tree = _parsed(sql)
    if tree["error"]:
        fail(f"this cannot be asked of the past: {tree['error_message']}")
    return _names(tree) or fail("the query names no table")


def _parsed(sql: str) -> Any:
    with duckdb.connect() as parser:
        try:
            [(text,)] = parser.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
        except duckdb.Error as error:
            fail(str(error).split("\n\nLINE")[0])
    return json.loads(text)


def _names(tree: Any) -> list[tuple[str, ...]]:
    """Names that a query gives to its own parts (WITH) are none."""
    nodes = list(_nodes(tree["statements"]))
    own = {entry["key"] for node in nodes for entry in node.get("cte_map", {}).get("map", ())}
    parts = ("catalog_name", "schema_name", "table_name")
    found = [tuple(filter(None, (node[part] for part in parts))) for node in nodes if node.get("type") == "BASE_TABLE"]
    return sorted({name for name in found if len(name) > 1 or name[0] not in own})


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """All objects of a JSON document."""
    if isinstance(tree, dict):
        yield tree
    for child in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _nodes(child)


def _make_view(connection: duckdb.DuckDBPyConnection, history: TableHistory, cut: Cut) -> None:
    namespace, table = (_quoted(part) for part in history.name)
    source = f"lake.{namespace}.{table}"
    if cut.snapshot_id is None:
        source += " WHERE false"
    else:
        source += f" AT (VERSION => {cut.snapshot_id:d})"
    if cut.snapshot_id is not None and cut.below is not None:
        kept = (f"(_stream_partition = {index:d} AND _offset < {end:d})" for index, end in sorted(cut.below.items()))
        source += f" WHERE {' OR '.join(kept) or 'false'}"
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS memory.{namespace}")
    connection.execute(f"CREATE VIEW memory.{namespace}.{table} AS SELECT * FROM {source}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
