"""`lakestream cluster up`: a whole cluster on this machine, in one terminal, until Ctrl-C."""

import asyncio
import shutil
import time
from pathlib import Path
from typing import Annotated

import typer

from lakestream.cli.console import fail, warn
from lakestream.cli.local.children import Child
from lakestream.cli.local.greeting import Greeting, ListedDoor
from lakestream.cli.local.parts import lock_folder, run_parts
from lakestream.cli.local.servers import HOST, NeededServer, keeps_objects, postgres, read_secret, s3
from lakestream.errors import RequestError
from lakestream.runtime import format_host_port

app = typer.Typer(help="Start a whole cluster on this machine.", no_args_is_help=True)


@app.callback()
def cluster() -> None:
    """A cluster as it would run on many machines, on this one."""


@app.command()
def up(
    kafka_port: Annotated[
        int, typer.Option(envvar="KAFKA_PORT", min=1, max=65535, help="Port of the first broker; the next follow it.")
    ] = 9092,
    http_port: Annotated[
        int, typer.Option(envvar="HTTP_PORT", min=1, max=65535, help="Port of the first HTTP door; the next follow it.")
    ] = 8181,
    monitor_port: Annotated[
        int,
        typer.Option(
            envvar="MONITOR_PORT",
            min=1,
            max=65535,
            help="Port of the first broker's metrics; those of the next, and of the pipeline, follow it.",
        ),
    ] = 9644,
    data: Annotated[Path, typer.Option(envvar="DATA", help="Directory for everything.")] = Path("cluster-data"),
    brokers: Annotated[int, typer.Option(min=1, max=16, help="How many brokers.")] = 3,
    doors: Annotated[int, typer.Option(min=1, max=16, help="How many HTTP doors.")] = 2,
    pipeline: Annotated[bool, typer.Option(help="Run the Spark pipeline, which fills the tables.")] = True,
) -> None:
    """Start PostgreSQL, an S3 server, brokers, HTTP doors and the pipeline. They listen on this machine only.

    PostgreSQL is the system's or pgserver's, the S3 server versitygw, or moto's if that is not here. A part that ends
    is started again. Ctrl-C stops all of them, in order. Data stays in the data directory.
    """
    started = time.monotonic()
    data = data.resolve()
    with lock_folder(data):
        try:
            servers = _servers(data)
        except RequestError as error:
            fail(str(error))
        except OSError as error:
            fail(f"the data directory {data} cannot be used: {error}; choose another with DATA=…")
        # Engines get the keys of the S3 server from the doors: nobody beyond this machine reaches either.
        environment = {"LAKESTREAM_HTTP_VEND_CREDENTIALS": "true"}
        for server in servers:
            environment |= server.environment

        def child(name: str, log: str, *arguments: str) -> Child:
            path = data / "logs" / f"{log}.log"
            return Child(name, (*arguments, "--data", str(data)), path, environment=environment)

        def door(name: str, log: str, port: int, *arguments: str) -> ListedDoor:
            at = ("--host", HOST, "--port", str(port))
            return ListedDoor(child(name, log, *arguments, *at), format_host_port(HOST, port))

        def monitor(index: int) -> tuple[str, str]:
            return "--monitor-port", str(monitor_port + index)

        kafka = [
            door(
                f"broker {index}", f"broker-{index}", kafka_port + index, "broker", "--id", str(index), *monitor(index)
            )
            for index in range(brokers)
        ]
        http = [door(f"HTTP door {index}", f"http-{index}", http_port + index, "http") for index in range(doors)]
        spark = child("pipeline", "pipeline", "pipeline", *monitor(brokers)) if pipeline else None
        told = [("Servers" if index == 0 else "", server.about) for index, server in enumerate(servers)]
        last = monitor_port + brokers - (not pipeline)
        told.append(("Metrics", f"http://{HOST}:{monitor_port}/metrics, and on the ports up to {last}"))
        greeting = Greeting(data, kafka, http, spark, told)
        status = asyncio.run(run_parts(greeting, started, [server.child for server in servers]))
    raise typer.Exit(status)


def _servers(data: Path) -> list[NeededServer]:
    """A database whose bucket was in memory is that of no bucket any more: it goes, too."""
    forgets = data / "objects-in-memory"
    if forgets.exists():
        shutil.rmtree(data / "postgres", ignore_errors=True)
        forgets.unlink()
    if not keeps_objects():
        if (data / "s3").exists():
            raise RequestError(f"{data} has objects of versitygw, which is not here any more: install it again")
        warn("versitygw is not here: moto's server stands in, which keeps objects in memory. Nothing will be kept.")
        forgets.touch()
    secret = read_secret(data)
    return [postgres(data, data / "logs", secret), s3(data, data / "logs", secret)]
