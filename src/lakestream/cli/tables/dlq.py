"""`lakestream dlq`: dead letters, records of typed topics whose value does not fit their schema."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

import duckdb
import typer

from lakestream.cli.console import emit_json, fail, out, say, show_table
from lakestream.cli.options import DEFAULT_CATALOG, Catalog, Json
from lakestream.cli.tables.query import connect
from lakestream.cli.tables.replay import replay
from lakestream.cli.tables.rest import CatalogError, Name, RestTables

app = typer.Typer(no_args_is_help=True, help=__doc__)

_KIND: Final = "lakestream.derived-kind"
_TOPIC: Final = "lakestream.derived-topic"
_SHOWN_BYTES: Final = 60


@dataclass(frozen=True, slots=True)
class _Letters:
    topic: str
    name: Name

    @property
    def sql(self) -> str:
        return "lake." + ".".join('"' + part.replace('"', '""') + '"' for part in self.name)


app.command()(replay)


@app.command("list")
def list_letters(catalog: Catalog = DEFAULT_CATALOG, json: Json = False) -> None:
    """Show which topics have dead letters, and how many. They are in the stream and its table, too."""
    connection = connect(catalog)
    found = []
    for letters in _tables(catalog):
        sql = f"SELECT count(*), count(DISTINCT _stream_partition), max(_detected_at) FROM {letters.sql}"
        [(count, partitions, newest)] = _rows(connection, sql)
        found.append((letters.topic, ".".join(letters.name), count, partitions, newest))
    if json:
        for row in found:
            emit_json(dict(zip(("topic", "table", "letters", "partitions", "newest"), row, strict=True)))
        return
    show_table(["topic", "table", "dead letters", "partitions", "newest found"], found)


@app.command("show")
def show_letters(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only this one.")] = None,
    limit: Annotated[int, typer.Option("--max", min=1, help="At most so many, the newest first.")] = 20,
    catalog: Catalog = DEFAULT_CATALOG,
    json: Json = False,
) -> None:
    """Show the dead letters of a topic: where each is, what is wrong with it, its key and its value."""
    letters = next((each for each in _tables(catalog) if each.topic == topic), None)
    if letters is None:
        fail(f"topic {topic!r} has no dead letters")
    where = "" if partition is None else f" WHERE _stream_partition = {partition:d}"
    names = ("_stream_partition", "_offset", "_timestamp", "_key", "_value", "_reason", "_detected_at")
    order = "ORDER BY _detected_at DESC, _stream_partition, _offset"
    rows = _rows(connect(catalog), f"SELECT {', '.join(names)} FROM {letters.sql}{where} {order} LIMIT {limit + 1:d}")
    if json:
        for row in rows[:limit]:
            shown = {name.removeprefix("_"): _text(cell) for name, cell in zip(names, row, strict=True)}
            emit_json({"partition": shown.pop("stream_partition"), **shown})
    else:
        show_table(
            ["partition", "offset", "key", "value", "what is wrong"],
            [(row[0], row[1], _short(row[3]), _short(row[4]), row[5]) for row in rows[:limit]],
        )
        out.print(f"{min(len(rows), limit)} dead letter{'' if min(len(rows), limit) == 1 else 's'}")
    if len(rows) > limit:
        say(f"There are more than {limit}: raise --max to see them.")


def _tables(catalog: str) -> list[_Letters]:
    tables = RestTables(catalog)
    found = []
    try:
        for name in tables.names():
            if "__dlq" in name[-1]:
                told = tables.properties(name)
                # One that was put away has the first digits of its id behind.
                if told.get(_KIND) == "dlq" and not name[-1].rpartition("__dlq")[2].startswith("__"):
                    found.append(_Letters(told.get(_TOPIC, ""), name))
    except CatalogError as error:
        fail(str(error))
    return found


def _rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    try:
        return connection.execute(sql).fetchall()
    except duckdb.Error as error:
        fail(str(error).split("\n\nLINE")[0])


def _text(cell: Any) -> Any:
    return bytes(cell).decode(errors="backslashreplace") if isinstance(cell, bytes | bytearray) else cell


def _short(cell: bytes | None) -> str | None:
    if cell is None:
        return None
    text = str(_text(cell[:_SHOWN_BYTES]))
    return text if len(cell) <= _SHOWN_BYTES else f"{text}… ({len(cell):,} bytes)"
