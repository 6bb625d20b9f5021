"""`lakestream broker`: one Kafka broker."""

from typing import Annotated

import typer

from lakestream.cli.serving import Config, Data, MonitorPort, ReadyFd, serve
from lakestream.node.broker import run_broker

app = typer.Typer(help="Run one Kafka broker.")


@app.command()
def broker(
    data: Data = None,
    broker_id: Annotated[int | None, typer.Option("--id", min=0, help="Its number, unique among the brokers.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to listen on.")] = None,
    advertised: Annotated[
        str | None, typer.Option(help="host:port that clients are told; without it, where the broker listens.")
    ] = None,
    monitor_port: MonitorPort = None,
    config: Config = None,
    ready_fd: ReadyFd = None,
) -> None:
    """Run one broker until Ctrl-C. Any number of them may share a bucket and a metadata store; none owns anything.

    Every setting can also come from --config or from the environment: LAKESTREAM_STREAM_FLUSH_INTERVAL_MS=250 …
    """
    named = {"data_dir": data and str(data), "broker.id": broker_id, "broker.host": host, "broker.port": port}
    named |= {"broker.advertised": advertised, "monitor.port": monitor_port}
    serve(run_broker, config, named, ready_fd, "broker")
