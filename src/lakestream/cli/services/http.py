"""`lakestream http`: the HTTP door."""

from typing import Annotated

import typer

from lakestream.cli.services.serving import Config, Data, ReadyFd, serve
from lakestream.node.http import run_http

app = typer.Typer(help="Run the HTTP door.")


@app.command()
def http(
    data: Data = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to listen on.")] = None,
    advertised: Annotated[
        str | None, typer.Option(help="host:port at which engines reach it; without it, where it listens.")
    ] = None,
    flight_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port for clients of Arrow Flight SQL; without it, none.")
    ] = None,
    config: Config = None,
    ready_fd: ReadyFd = None,
) -> None:
    """Serve the Iceberg REST catalog under /iceberg, and /health, until Ctrl-C.

    Spark, DuckDB, PyIceberg, Trino … find every topic there as the table default.<topic>.
    """
    named = {"data_dir": data and str(data), "http.host": host, "http.port": port, "http.advertised": advertised}
    named |= {"flight.host": host, "flight.port": flight_port}
    serve(run_http, config, named, ready_fd, "http")
