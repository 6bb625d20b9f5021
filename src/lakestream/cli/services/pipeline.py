"""`lakestream pipeline`: the Spark job that fills the tables."""

from functools import partial
from typing import Annotated

import typer

from lakestream.cli.console import emit_json, fail, out
from lakestream.cli.options import Json
from lakestream.cli.services.serving import Config, Data, MonitorPort, ReadyFd, serve
from lakestream.node.pipeline import run_pipeline

app = typer.Typer(help="Run the Spark pipeline.")


@app.command()
def pipeline(
    data: Data = None,
    once: Annotated[bool, typer.Option("--once", help="Move what is there now, then stop.")] = False,
    interval_s: Annotated[
        float | None, typer.Option("--interval", min=0.05, help="Seconds between looks at the log.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Where Spark runs: local[*], spark://host:port, yarn or k8s://…")
    ] = None,
    monitor_port: MonitorPort = None,
    config: Config = None,
    json: Json = False,
    ready_fd: ReadyFd = None,
) -> None:
    """Move records from the log into their Iceberg tables. It may be killed at any moment, and several may run."""
    named = {
        "data_dir": data and str(data),
        "pipeline.interval_ms": interval_s and int(interval_s * 1000),
        "spark.master": master,
        "monitor.port": monitor_port,
    }
    summary = serve(partial(run_pipeline, once=once), config, named, ready_fd, "pipeline")
    if json:
        emit_json({"records": summary.record_count, "wal_bytes": summary.wal_bytes, "failed": summary.failed})
    elif once:
        out.print(f"{summary.record_count:,} records moved into their tables.")
    if once and summary.failed:
        fail(f"not everything could be moved: {', '.join(summary.failed)}")
