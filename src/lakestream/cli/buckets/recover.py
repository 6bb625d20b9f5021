"""`lakestream recover`: a lost metadata store, rebuilt from the bucket."""

import asyncio
import os
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from lakestream.cli.buckets.locking import lock_data
from lakestream.cli.console import emit_json, fail, out, say, warn
from lakestream.cli.options import Json
from lakestream.cli.services.serving import Config, Data
from lakestream.errors import LakestreamError
from lakestream.node.bucket import recover_store
from lakestream.settings import load

app = typer.Typer(help="Rebuild a lost metadata store from the bucket.")


@app.command()
def recover(
    data: Data = None,
    cluster: Annotated[str, typer.Option(help="Whose store it is, if several clusters use the bucket.")] = "",
    config: Config = None,
    json: Json = False,
) -> None:
    """Rebuild the metadata store from the bucket alone: tables, WAL objects with their receipts, and saved rows.

    Only into an empty store, and while no process of the cluster runs. It says what it could not know. It may be
    stopped at any moment and run again."""
    try:
        settings = load(config, os.environ, {"data_dir": data and str(data)})
        with lock_data(settings, create=True):
            done = asyncio.run(recover_store(settings, cluster=cluster, tell=say))
    except LakestreamError as error:
        fail(str(error))
    if json:
        emit_json(asdict(done))
        return
    out.print(
        f"Cluster {done.cluster_id} has its metadata store again: {done.topics} topics, {done.partitions} partitions,"
        f" {done.tail_records:,} records that are not in a table yet, {done.subjects} subjects with schemas.",
        soft_wrap=True,
    )
    if done.saved_ms is not None:
        time = datetime.fromtimestamp(done.saved_ms / 1000, UTC).isoformat(timespec="seconds")
        out.print(f"Topics, groups and names are as they were saved at {time}; what changed later is lost.")
    if done.appended or done.left_out:
        warn(
            f"{done.appended:,} records were in objects of which nobody had written what became of them: they are at"
            f" the end of their partitions now, perhaps not at the offsets that they had. {done.left_out:,} more were"
            " left out: their producers' sequences say that they are there already, or never were."
        )
    for note in done.notes:
        warn(note)
