"""`lakestream table`: a topic seen as its Iceberg table, through the REST catalog."""

import time
from collections.abc import Callable
from typing import Annotated, Any, Final

import duckdb
import typer

from lakestream.cli.clients.admin import open_admin
from lakestream.cli.clients.positions import committed
from lakestream.cli.console import emit_json, fail, out, say, show_table, warn
from lakestream.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_CATALOG, Bootstrap, Catalog, Json, Table, parse_time
from lakestream.cli.tables.columns import count_kinds, shape_in
from lakestream.cli.tables.history import TableHistory, uncovered, written
from lakestream.cli.tables.lag import lag
from lakestream.cli.tables.maintain import maintain
from lakestream.cli.tables.query import Cut, connect, cut_off, incomplete
from lakestream.cli.tables.rest import CatalogError, RestTables
from lakestream.cli.tables.travel import rollback, snapshot_of, snapshots, tag

app = typer.Typer(no_args_is_help=True, help="Look at a topic's Iceberg table, the way any engine would.")

_POLL_S: Final = 0.25


@app.command("list")
def list_(catalog: Catalog = DEFAULT_CATALOG, json: Json = False) -> None:
    """List the tables of the catalog, each with its topic if it is a stream's."""
    tables = RestTables(catalog)
    try:
        found = [table for name in sorted(tables.names()) if (table := tables.load(name)) is not None]
    except CatalogError as error:
        fail(str(error))
    rows = [
        (each.table, each.topic, each.current.rows if each.current else 0, written(each.frontier)) for each in found
    ]
    if json:
        emit_json([dict(zip(("table", "topic", "rows", "frontier"), row, strict=True)) for row in rows])
    elif rows:
        show_table(["table", "topic", "rows", "frontier"], rows)
    else:
        out.print("There are no tables yet: a topic's appears with its first commit.")


@app.command()
def describe(name: Table, catalog: Catalog = DEFAULT_CATALOG, json: Json = False) -> None:
    """Show a table: columns, size, snapshot, and how far each partition is in it.

    Of one with columns of the values also their schemas, and how many rows have their value in columns alone (typed),
    with the bytes beside (typed and raw), or as bytes (raw).
    """
    tables = RestTables(catalog)
    history = tables.find(name)
    loaded = tables.raw(history)
    metadata = loaded["metadata"]
    snapshot = next((each for each in metadata["snapshots"] if each["snapshot-id"] == history.current_id), None)
    summary = snapshot["summary"] if snapshot else {}
    facts = {
        "table": history.table,
        "topic": history.topic,
        "location": metadata["location"],
        "metadata": loaded["metadata-location"],
        "format_version": metadata["format-version"],
        "snapshot_id": history.current_id,
        "rows": int(summary.get("total-records", 0)),
        "files": int(summary.get("total-data-files", 0)),
        "size_bytes": int(summary.get("total-files-size", 0)),
        "topic_id": history.topic_id,
        "frontier": list(history.frontier),
    }
    schema = next(each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"])
    columns = [
        {"id": field["id"], "name": field["name"], "type": _type(field["type"]), "required": field["required"]}
        for field in schema["fields"]
    ]
    shape = shape_in(metadata.get("properties", {}))
    kinds = count_kinds(catalog, history.name) if shape.codec and facts["rows"] else {}
    schemas = [
        {"id": each.schema_id, "format": each.format, "values": each.trouble or "columns"} for each in shape.schemas
    ]
    if json:
        typed = {"codec": shape.codec, "schemas": schemas, "kinds": kinds} if shape.schemas or shape.codec else {}
        emit_json(facts | {"columns": columns} | typed)
        return
    show_table(["property", "value"], facts.items())
    show_table(["id", "column", "type", "required"], [column.values() for column in columns])
    if schemas:
        show_table(["schema id", "format", "values are"], [each.values() for each in schemas])
    if kinds:
        total = sum(kinds.values())
        show_table(["rows are", "rows", "share"], [(*each, f"{each[1] / total:.1%}") for each in kinds.items()])


app.command()(lag)
app.command()(snapshots)
app.command()(tag)
app.command()(rollback)
app.command()(maintain)


@app.command()
def query(
    sql: Annotated[str, typer.Argument(help="SQL. A topic is a table of the same name.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many rows.")] = 100,
    as_of_snapshot: Annotated[
        str | None, typer.Option("--as-of-snapshot", metavar="ID|TAG", help="The table as that snapshot has it.")
    ] = None,
    as_of_timestamp: Annotated[
        str | None, typer.Option("--as-of-timestamp", metavar="TIME", help="The table as it was then (ISO 8601).")
    ] = None,
    as_of_group: Annotated[
        str | None, typer.Option("--as-of-group", metavar="GROUP", help="Only what this consumer group has read.")
    ] = None,
    wait_s: Annotated[
        float, typer.Option("--wait", min=0, help="Seconds to wait until the table has all that the group has read.")
    ] = 10.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    catalog: Catalog = DEFAULT_CATALOG,
    json: Json = False,
) -> None:
    """Run SQL over the tables with DuckDB.

    Keys and values are bytes: try(decode(_value)) makes them text, try_cast(… AS json)->>'field' reads JSON, and both
    make null of what is neither. A line says so if records that were acked are not in the table yet.

    Examples:

      lakestream table query 'SELECT count(*) FROM orders'

      lakestream table query "SELECT try_cast(try(decode(_value)) AS json)->>'item', count(*) FROM orders GROUP BY 1"

      lakestream table query 'SELECT count(*) FROM orders' --as-of-group readers
    """
    if sum(each is not None for each in (as_of_snapshot, as_of_timestamp, as_of_group)) > 1:
        fail("a query has one past: --as-of-snapshot, --as-of-timestamp or --as-of-group")
    connection = connect(catalog)
    tables = RestTables(catalog)
    cut: Callable[[TableHistory], Cut] | None = None
    if as_of_snapshot is not None:
        cut = lambda history: Cut(snapshot_of(history, as_of_snapshot).snapshot_id)  # noqa: E731
    elif as_of_timestamp is not None:
        cut = _at_time(parse_time(as_of_timestamp), as_of_timestamp)
    elif as_of_group is not None:
        cut = _at_group(tables, bootstrap, as_of_group, wait_s)
    # DuckDB loads the tables by itself, between these two looks: what is behind at one of them may lack records.
    behind = incomplete(sql, tables) if cut is None else {}
    try:
        if cut is not None:
            cut_off(connection, sql, tables, cut)
        cursor = connection.execute(sql)
        rows = cursor.fetchmany(limit + 1) if cursor.description else []
    except duckdb.Error as error:
        fail(str(error).split("\n\nLINE")[0])
    names = [column[0] for column in cursor.description or []]
    shown = [[_readable(cell) for cell in row] for row in rows[:limit]]
    if json:
        for row in shown:
            emit_json(dict(zip(names, row, strict=True)))
    else:
        show_table(names, shown)
        out.print(f"{len(shown)} row{'' if len(shown) == 1 else 's'}")
    if len(rows) > limit:
        say(f"There are more than {limit} rows: raise --limit to see them.")
    if cut is None:
        behind = incomplete(sql, tables) | behind
    for sentence in behind.values():
        warn(f"{sentence}; `lakestream table lag` shows how far the pipeline is")


def _at_time(timestamp_ms: int, text: str) -> Callable[[TableHistory], Cut]:
    def cut(history: TableHistory) -> Cut:
        snapshot = history.at(timestamp_ms)
        if snapshot is None and any(since_ms <= timestamp_ms for since_ms, _ in history.main_log):
            fail(f"{history.table} of {text} has expired; the oldest snapshot left is of {history.snapshots[0].time}")
        return Cut(None if snapshot is None else snapshot.snapshot_id)

    return cut


def _at_group(tables: RestTables, bootstrap: str, group: str, wait_s: float) -> Callable[[TableHistory], Cut]:
    """The group's positions are read once, before any table."""
    positions = committed(open_admin(bootstrap), group)
    deadline = time.monotonic() + wait_s

    def cut(history: TableHistory) -> Cut:
        topic = history.topic or history.name[-1]
        below = {index: offset for (name, index), offset in positions.items() if name == topic}
        if not below:
            fail(f"group {group!r} has committed nothing in topic {topic!r}, the topic of {history.table}")
        read = tuple(below.get(index, 0) for index in range(max(below) + 1))
        while missing := uncovered(history.frontier, read):
            if time.monotonic() >= deadline:
                fail(
                    f"group {group!r} has read further than {history.table} is: offsets {', '.join(missing)} are not "
                    "in the table yet. Is the pipeline running? Try again, or give it longer with --wait"
                )
            time.sleep(_POLL_S)
            history = tables.find(history.table)
        return Cut(history.current_id, below)

    return cut


def _type(kind: Any) -> str:
    """As Iceberg writes types in text: its JSON has objects for those that have others in them."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "list":
        return f"list<{_type(kind['element'])}>"
    if kind["type"] == "map":
        return f"map<{_type(kind['key'])}, {_type(kind['value'])}>"
    fields = ", ".join(f"{field['name']}: {_type(field['type'])}" for field in kind["fields"])
    return f"struct<{fields}>"


def _readable(cell: Any) -> Any:
    if isinstance(cell, bytes | bytearray):
        return bytes(cell).decode(errors="backslashreplace")
    return cell
