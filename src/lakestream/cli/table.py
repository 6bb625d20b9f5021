"""`lakestream table`: a topic seen as its Iceberg table, through the REST catalog."""

from typing import Annotated, Any

import duckdb
import typer
from duckdb_extensions import import_extension
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError, RESTError
from requests.exceptions import ConnectionError as NoConnection

from lakestream.cli.console import emit_json, fail, out, say, show_table
from lakestream.cli.options import DEFAULT_CATALOG, Catalog, Json

app = typer.Typer(no_args_is_help=True, help="Look at a topic's Iceberg table, the way any engine would.")


@app.command()
def describe(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, or namespace.table.")],
    catalog: Catalog = DEFAULT_CATALOG,
    json: Json = False,
) -> None:
    """Show a table: columns, size, snapshot, and how far each partition is in it."""
    try:
        table = RestCatalog("lakestream", uri=catalog).load_table(name if "." in name else f"default.{name}")
    except NoSuchTableError:
        fail(f"there is no table {name!r} yet: it appears with the topic's first commit")
    except NoConnection:
        fail(f"no catalog answers at {catalog}")
    except RESTError as error:
        fail(f"the catalog at {catalog} refused: {error}")
    snapshot = table.current_snapshot()
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    frontier = table.properties.get("lakestream.frontier", "")
    facts = {
        "table": ".".join(table.name()),
        "location": table.location(),
        "metadata": table.metadata_location,
        "format_version": table.format_version,
        "snapshot_id": snapshot.snapshot_id if snapshot else None,
        "rows": int(summary.get("total-records", 0)),
        "files": int(summary.get("total-data-files", 0)),
        "size_bytes": int(summary.get("total-files-size", 0)),
        "topic_id": table.properties.get("lakestream.topic-id"),
        "frontier": [int(offset) for offset in frontier.split(",") if offset],
    }
    columns = [
        {"id": field.field_id, "name": field.name, "type": str(field.field_type), "required": field.required}
        for field in table.schema().fields
    ]
    if json:
        emit_json(facts | {"columns": columns})
        return
    show_table(["property", "value"], facts.items())
    show_table(["id", "column", "type", "required"], [column.values() for column in columns])


@app.command()
def query(
    sql: Annotated[str, typer.Argument(help="SQL. A topic is a table of the same name.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many rows.")] = 100,
    catalog: Catalog = DEFAULT_CATALOG,
    json: Json = False,
) -> None:
    """Run SQL over the tables with DuckDB.

    Keys and values are bytes: decode(_value) makes them text, and ->> reads JSON.

    Examples:

      lakestream table query 'SELECT count(*) FROM orders'

      lakestream table query "SELECT decode(_value)->>'item' AS item, count(*) FROM orders GROUP BY 1"
    """
    connection = _connect(catalog)
    try:
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


def _connect(catalog: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name in ("avro", "httpfs", "iceberg"):
        import_extension(name)
        connection.load_extension(name)
    endpoint = catalog.replace("'", "''")
    try:
        connection.execute(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{endpoint}', AUTHORIZATION_TYPE 'none')")
        connection.execute('USE lake."default"')
    except duckdb.Error as error:
        fail(f"no catalog answers at {catalog}: {str(error).splitlines()[0]}")
    return connection


def _readable(cell: Any) -> Any:
    if isinstance(cell, bytes | bytearray):
        return bytes(cell).decode(errors="backslashreplace")
    return cell
