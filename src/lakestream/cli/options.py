"""Options that several commands share, and the client configuration behind them."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from lakestream.cli.console import fail

Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap", "-b", envvar="LAKESTREAM_BOOTSTRAP", help="Kafka address, host:port[,host:port]."),
]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

Catalog = Annotated[
    str, typer.Option("--catalog", envvar="LAKESTREAM_CATALOG", help="Address of the Iceberg REST catalog.")
]
DEFAULT_CATALOG = "http://127.0.0.1:8181/iceberg"

RegistryUrl = Annotated[
    str, typer.Option("--registry", envvar="LAKESTREAM_REGISTRY", help="Address of the schema registry.")
]
DEFAULT_REGISTRY = "http://127.0.0.1:8181/registry"

Table = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, or namespace.table.")]

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]

CONNECT_TIMEOUT_S = 5.0
"""How long a command waits for a first answer before it says that nobody is there."""
REQUEST_TIMEOUT_S = 10.0


def parse_time(text: str) -> int:
    """Milliseconds since 1970, from ISO 8601 (UTC unless it says otherwise) or from such a number. Ends the command."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        fail(f"{text!r} is no time: write 2026-03-01T08:00:00Z, or milliseconds since 1970")
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
