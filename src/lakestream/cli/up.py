"""`lakestream up`: everything on this machine, in one terminal, until Ctrl-C."""

import asyncio
import fcntl
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated

import typer
from rich.panel import Panel
from rich.table import Table

from lakestream.cli.children import Child, Children
from lakestream.cli.console import fail, out, say, warn
from lakestream.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_CATALOG

app = typer.Typer(help="Start everything on this machine.")

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class _Plan:
    data: Path
    kafka_port: int
    http_port: int
    brokers: int
    pipeline: bool
    master: str | None

    def broker_children(self) -> list[Child]:
        return [
            self._child(f"broker {number}", f"broker-{number}", "broker", "--id", str(number), *_at(port))
            for number, port in enumerate(range(self.kafka_port, self.kafka_port + self.brokers))
        ]

    def http_child(self) -> Child:
        return self._child("HTTP door", "http", "http", *_at(self.http_port))

    def pipeline_child(self) -> Child:
        return self._child("pipeline", "pipeline", "pipeline", *(("--master", self.master) if self.master else ()))

    def _child(self, name: str, log: str, *arguments: str) -> Child:
        return Child(name, (*arguments, "--data", str(self.data)), self.data / "logs" / f"{log}.log")


def _at(port: int) -> tuple[str, ...]:
    return ("--host", HOST, "--port", str(port))


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
    pipeline: Annotated[bool, typer.Option(help="Run the Spark pipeline, which fills the tables.")] = True,
    master: Annotated[str | None, typer.Option(help="Where Spark runs: local[*], spark://host:port, yarn …")] = None,
) -> None:
    """Start brokers, HTTP door and Spark pipeline. They listen on this machine only; Ctrl-C stops them all.

    Data stays in the data directory: the next start goes on with it.
    """
    started = time.monotonic()
    data = data.resolve()
    lock = _lock(data)
    ports = {f"broker {index}": (kafka_port + index, "KAFKA_PORT") for index in range(brokers)}
    ports["the HTTP door"] = (http_port, "HTTP_PORT")
    for name, (port, variable) in ports.items():
        _check_port(name, port, variable)
    with lock:
        status = asyncio.run(_run(_Plan(data, kafka_port, http_port, brokers, pipeline, master), started))
    raise typer.Exit(status)


async def _run(plan: _Plan, started: float) -> int:
    """The exit status: 0 if somebody asked for the end, 1 if a door could not be kept open.

    One kind of process after the other, so that the processors are the brokers' until those serve."""
    children = Children(lambda _, sentence: warn(sentence))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stopping = asyncio.create_task(_wait([stop]))
    kept: list[asyncio.Task[None]] = []

    async def serving(*doors: Child) -> bool:
        """Starts them and waits until they serve; False if the end comes first."""
        kept.extend(map(children.start, doors))
        ready = asyncio.create_task(_wait([door.ready for door in doors]))
        await asyncio.wait([ready, stopping, *kept], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        return all(door.ready.is_set() for door in doors)

    try:
        if await serving(*plan.broker_children()):
            _greet(plan, time.monotonic() - started)
            if await serving(plan.http_child()):
                news = asyncio.create_task(_fill_tables(plan, children))
                await asyncio.wait([stopping, *kept], return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
        return 0 if stop.is_set() else 1
    finally:
        say("Stopping …")
        await children.stop()


async def _wait(events: list[asyncio.Event]) -> None:
    for event in events:
        await event.wait()


async def _fill_tables(plan: _Plan, children: Children) -> None:
    if plan.pipeline:
        spark = plan.pipeline_child()
        children.start(spark)
        await spark.ready.wait()
        say("The pipeline is running: records appear in their tables within seconds.")


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


def _check_port(name: str, port: int, variable: str) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            fail(f"port {port} for {name} cannot be used ({error.strerror}): choose another with {variable}=…")


def _greet(plan: _Plan, seconds: float) -> None:
    first = f"{HOST}:{plan.kafka_port}"
    catalog = f"http://{HOST}:{plan.http_port}/iceberg"
    program = os.path.relpath(sys.argv[0]) if Path(sys.argv[0]).name == "lakestream" else "python -m lakestream.cli"
    bootstrap = "" if first == DEFAULT_BOOTSTRAP else f" -b {first}"
    rest = "" if catalog == DEFAULT_CATALOG else f" --catalog {catalog}"
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    facts.add_row("Kafka", ", ".join(f"{HOST}:{plan.kafka_port + number}" for number in range(plan.brokers)))
    facts.add_row("Catalog", catalog)
    facts.add_row("Data", str(plan.data))
    facts.add_row("Pipeline", "starting; nothing waits for it" if plan.pipeline else "not started")
    facts.add_row()
    facts.add_row("Try", f"{program} demo{bootstrap}")
    facts.add_row("", f"{program} consume orders --from-beginning{bootstrap}")
    facts.add_row("", f"{program} table query 'SELECT count(*) FROM orders'{rest}")
    title = f"[bold]lakestream[/] ready in {seconds:.1f} s"
    out.print(Panel(facts, title=title, subtitle="Ctrl-C stops everything", expand=False, padding=(1, 2)))
