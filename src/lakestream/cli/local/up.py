"""`lakestream up`: everything on this machine, in one terminal, until Ctrl-C."""

import asyncio
import time
from pathlib import Path
from typing import Annotated

import typer

from lakestream.cli.console import fail
from lakestream.cli.local.children import Child
from lakestream.cli.local.greeting import Greeting, ListedDoor
from lakestream.cli.local.parts import lock_folder, run_parts
from lakestream.runtime import format_host_port, is_everywhere, parse_host_port

app = typer.Typer(help="Start everything on this machine.")


@app.command()
def up(
    kafka_port: Annotated[
        int, typer.Option(envvar="KAFKA_PORT", min=1, max=65535, help="Port of the first broker; the next follow it.")
    ] = 9092,
    http_port: Annotated[
        int, typer.Option(envvar="HTTP_PORT", min=1, max=65535, help="Port of catalog and health.")
    ] = 8181,
    data: Annotated[Path, typer.Option(envvar="DATA", help="Directory for bucket, metadata and logs.")] = Path("data"),
    brokers: Annotated[int, typer.Option(envvar="BROKERS", min=1, max=64, help="How many brokers.")] = 1,
    bind: Annotated[
        str, typer.Option(envvar="BIND", help="Address to listen on. Whoever reaches it may read and write everything.")
    ] = "127.0.0.1",
    kafka_advertised: Annotated[
        str,
        typer.Option(
            envvar="KAFKA_ADVERTISED",
            help="host:port that Kafka clients are told; the ports of further brokers follow it, or name all: a:1,b:2.",
        ),
    ] = "",
    http_advertised: Annotated[
        str, typer.Option(envvar="HTTP_ADVERTISED", help="host:port at which engines reach the catalog.")
    ] = "",
    flight_port: Annotated[
        int | None,
        typer.Option(envvar="FLIGHT_PORT", min=1, max=65535, help="Port for clients of Arrow Flight SQL; else none."),
    ] = None,
    monitor_port: Annotated[
        int | None,
        typer.Option(
            envvar="MONITOR_PORT",
            min=1,
            max=65535,
            help="Port of the first broker's metrics; those of the next, and of the pipeline, follow it.",
        ),
    ] = None,
    pipeline: Annotated[bool, typer.Option(help="Run the Spark pipeline, which fills the tables.")] = True,
    master: Annotated[str | None, typer.Option(help="Where Spark runs: local[*], spark://host:port, yarn …")] = None,
) -> None:
    """Start brokers, HTTP door and Spark pipeline. They listen on this machine only; Ctrl-C stops them all.

    Data stays in the data directory: the next start goes on with it. A part that cannot start is tried again and again
    while the others serve.
    """
    started = time.monotonic()
    data = data.resolve()

    def child(name: str, log: str, *arguments: str) -> Child:
        return Child(name, (*arguments, "--data", str(data)), data / "logs" / f"{log}.log")

    def door(name: str, log: str, port: int, advertised: str, *arguments: str) -> ListedDoor:
        at = ("--host", bind, "--port", str(port), *(("--advertised", advertised) if advertised else ()))
        return ListedDoor(child(name, log, *arguments, *at), advertised or format_host_port(bind, port))

    if is_everywhere(bind) and not (kafka_advertised and http_advertised):
        fail(
            f"BIND={bind} listens everywhere: say which address clients are to use, with "
            f"KAFKA_ADVERTISED=host:{kafka_port} and HTTP_ADVERTISED=host:{http_port}"
        )
    told = _advertised(kafka_advertised, brokers)

    def monitor(index: int) -> tuple[str, ...]:
        return () if monitor_port is None else ("--monitor-port", str(monitor_port + index))

    kafka = [
        door(
            f"broker {index}",
            f"broker-{index}",
            kafka_port + index,
            told[index],
            *("broker", "--id", str(index), *monitor(index)),
        )
        for index in range(brokers)
    ]
    flight = () if flight_port is None else ("--flight-port", str(flight_port))
    http = door("HTTP door", "http", http_port, _checked(http_advertised), "http", *flight)
    spark = child("pipeline", "pipeline", "pipeline", *monitor(brokers), *(("--master", master) if master else ()))
    facts = [] if flight_port is None else [("Flight SQL", f"grpc://{format_host_port(bind, flight_port)}")]
    with lock_folder(data):
        status = asyncio.run(run_parts(Greeting(data, kafka, [http], spark if pipeline else None, facts), started))
    raise typer.Exit(status)


def _advertised(text: str, brokers: int) -> list[str]:
    """Of each broker; nothing where it is told as it listens."""
    if not text:
        return [""] * brokers
    each = [_checked(part) for part in text.split(",")]
    if len(each) == 1:
        host, port = parse_host_port(each[0])
        each = [_checked(format_host_port(host, port + index)) for index in range(brokers)]
    if len(each) != brokers:
        fail(f"{len(each)} addresses are advertised for {brokers} brokers: name the first, or one for each")
    return each


def _checked(address: str) -> str:
    try:
        if address:
            parse_host_port(address)
    except ValueError as error:
        fail(str(error))
    return address.strip()
