"""Options that several commands share, and the client configuration behind them."""

from typing import Annotated

import typer

Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap", "-b", envvar="LAKESTREAM_BOOTSTRAP", help="Kafka address, host:port[,host:port]."),
]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

Catalog = Annotated[
    str, typer.Option("--catalog", envvar="LAKESTREAM_CATALOG", help="Address of the Iceberg REST catalog.")
]
DEFAULT_CATALOG = "http://127.0.0.1:8181/iceberg"

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]

CONNECT_TIMEOUT_S = 5.0
"""How long a command waits for a first answer before it says that nobody is there."""
REQUEST_TIMEOUT_S = 10.0
