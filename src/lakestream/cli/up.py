"""`lakestream up`: everything on this machine, in one terminal, until Ctrl-C."""

import asyncio
import fcntl
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Annotated

import typer

from lakestream.cli.children import Child, Children
from lakestream.cli.console import complain, fail, say
from lakestream.cli.greeting import Greeting, ListedDoor
from lakestream.runtime import format_host_port, is_everywhere, parse_host_port

app = typer.Typer(help="Start everything on this machine.")

_SETTLE_S = 10.0
"""How long the greeting waits for brokers that neither serve nor end."""


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
            f"BIND={bind} listens everywhere: say what clients shall call, with "
            f"KAFKA_ADVERTISED=host:{kafka_port} and HTTP_ADVERTISED=host:{http_port}"
        )
    told = _advertised(kafka_advertised, brokers)
    kafka = [
        door(f"broker {index}", f"broker-{index}", kafka_port + index, told[index], "broker", "--id", str(index))
        for index in range(brokers)
    ]
    http = door("HTTP door", "http", http_port, _checked(http_advertised), "http")
    spark = child("pipeline", "pipeline", "pipeline", *(("--master", master) if master else ()))
    with _lock(data):
        status = asyncio.run(_run(Greeting(data, kafka, http, spark if pipeline else None), started))
    raise typer.Exit(status)


async def _run(greeting: Greeting, started: float) -> int:
    """The exit status: 0 if somebody asked for the end, 1 if no broker can serve until something is changed.

    One kind of process after the other, so that the processors are the brokers' until those serve."""
    children = Children(greeting.on_change)
    stop = asyncio.Event()
    hurry = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, lambda: (hurry if stop.is_set() else stop).set())
    stopping = asyncio.create_task(stop.wait())
    starting = asyncio.create_task(_start(greeting, children, started))
    try:
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set() and not starting.result():
            return 1
        await stopping
        return 0
    finally:
        starting.cancel()
        stopping.cancel()
        if greeting.shown:
            if greeting.pipeline is None:
                say("Stopping. No pipeline runs, so tables may lack what was acknowledged; the log has it.")
            else:
                say("Stopping: what was acknowledged is moved into its tables. Ctrl-C again ends it at once.")
        words = await children.stop(greeting.pipeline, hurry)
        if greeting.shown and greeting.pipeline is not None:
            say(f"Stopped: {words}." if words else "Stopped. Tables may lack what the pipeline had not moved yet.")


async def _start(greeting: Greeting, children: Children, started: float) -> bool:
    """False: nothing serves, and nothing will by itself."""
    for door in greeting.brokers:
        children.start(door.child)
    await _settled(*(door.child for door in greeting.brokers))
    if refusals := greeting.refusals():
        for sentence in refusals:
            complain(sentence)
        return False
    greeting.show(time.monotonic() - started)
    children.start(greeting.http.child)
    await _settled(greeting.http.child)
    if greeting.pipeline is not None:
        children.start(greeting.pipeline)
    return True


async def _settled(*children: Child) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_SETTLE_S):
            for child in children:
                await child.settled.wait()


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


def _lock(data: Path) -> IO[str]:
    """Held while we live; the kernel lets go of it when we die, however that happens."""
    try:
        (data / "logs").mkdir(parents=True, exist_ok=True)
        lock = (data / "lock").open("a+")
    except OSError as error:
        fail(f"the data directory {data} cannot be used: {error.strerror}; choose another with DATA=…")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        owner = lock.read().strip()
        by = f" by process {owner}" if owner else ""
        fail(f"the data directory {data} is in use{by}: stop that lakestream, or choose another with DATA=…")
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock
