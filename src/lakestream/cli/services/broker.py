"""`lakestream broker`: a Kafka broker, or one for each core."""

import asyncio
from collections.abc import Callable
from typing import Annotated

import typer

from lakestream.cli.services.serving import Config, Data, MonitorPort, ReadyFd, serve
from lakestream.cli.services.workers import run_workers
from lakestream.node.broker import run_broker
from lakestream.settings import Settings

app = typer.Typer(help="Run a Kafka broker.")


@app.command()
def broker(
    data: Data = None,
    broker_id: Annotated[
        int | None,
        typer.Option("--id", min=0, help="Its number, unique among the brokers; without it, one that is free."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to listen on.")] = None,
    advertised: Annotated[
        str | None, typer.Option(help="host:port that clients are told; without it, where the broker listens.")
    ] = None,
    zone: Annotated[str | None, typer.Option(help="The availability zone it is in: clients call it rack.")] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Processes, one for each core; their ports and ids follow the first's."),
    ] = None,
    worker: Annotated[int | None, typer.Option("--worker", hidden=True)] = None,
    monitor_port: MonitorPort = None,
    config: Config = None,
    ready_fd: ReadyFd = None,
) -> None:
    """Run a broker until Ctrl-C. Any number of them may share a bucket and a metadata store; none owns anything.

    Every setting can also come from --config or from the environment: LAKESTREAM_STREAM_FLUSH_INTERVAL_MS=250 …
    """
    named = {"data_dir": data and str(data), "broker.id": broker_id, "broker.host": host, "broker.port": port}
    named |= {"broker.advertised": advertised, "broker.zone": zone, "broker.workers": workers}
    named["monitor.port"] = monitor_port
    common = [*(("--data", str(data)) if data else ()), *(("--config", str(config)) if config else ())]

    async def run(settings: Settings, ready: Callable[[], None], stop: asyncio.Event) -> None:
        if worker is None and settings.broker.workers > 1:
            await run_workers(settings, common, ready, stop)
        else:
            await run_broker(settings, ready, stop)

    serve(run, config, named, ready_fd, "broker", worker)
