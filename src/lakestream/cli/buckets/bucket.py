"""`lakestream bucket`: whose a bucket is, and how it becomes one of another address."""

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from lakestream.cli.buckets.locking import lock_data
from lakestream.cli.console import emit_json, fail, out, say, show_table, warn
from lakestream.cli.options import Json
from lakestream.cli.services.serving import Config, Data
from lakestream.errors import LakestreamError
from lakestream.node.bucket import join_bucket, read_bucket, relocate_bucket
from lakestream.settings import Settings, load

app = typer.Typer(help="Whose a bucket is; move or copy it.", no_args_is_help=True)
T = TypeVar("T")
_OUTSIDE_SHOWN = 5


@app.command()
def show(data: Data = None, config: Config = None, json: Json = False) -> None:
    """Show which clusters use the bucket, and where each has its metadata."""
    known, found = _run(read_bucket(_settings(data, config)))
    if json:
        for each in found:
            emit_json({"cluster": each.cluster_id, "bucket": each.bucket, "metadata": each.metadata})
        return
    show_table(
        ["cluster", "address", "metadata", ""],
        [(each.cluster_id, each.bucket, each.metadata, "this" if each.cluster_id == known else "") for each in found],
    )


@app.command()
def relocate(
    data: Data = None,
    new_cluster: Annotated[
        bool, typer.Option("--new-cluster", help="Make it a cluster of its own, beside the one it is a copy of.")
    ] = False,
    old: Annotated[
        str, typer.Option("--from", help="The old address (file:///…, s3://…), if the bucket does not say it.")
    ] = "",
    config: Config = None,
    json: Json = False,
) -> None:
    """Make a bucket that was moved, copied or restored usable at its new address, with its metadata store.

    Rewrites what names files by their old address; the original is not touched. Nothing may use the bucket meanwhile.
    It may be stopped at any moment and run again."""
    settings = _settings(data, config)
    with lock_data(settings):
        done = _run(relocate_bucket(settings, new_cluster=new_cluster, old=old, tell=say))
    if json:
        emit_json({"cluster": done.cluster_id, "tables": done.tables, "views": done.views, "outside": done.outside})
        return
    out.print(
        f"{done.new} is now that of cluster {done.cluster_id}: {done.tables} tables and {done.views} views were moved.",
        soft_wrap=True,
    )
    if done.outside:
        some = ", ".join(done.outside[:_OUTSIDE_SHOWN])
        warn(f"tables name {len(done.outside)} files that were never in the bucket; they stay where they are: {some}")


@app.command()
def join(data: Data = None, config: Config = None) -> None:
    """Begin another cluster, with a metadata store of its own, in a bucket that a cluster uses already."""
    out.print(f"Cluster {_run(join_bucket(_settings(data, config)))} may start here now.")


def _settings(data: Path | None, config: Path | None) -> Settings:
    try:
        return load(config, os.environ, {"data_dir": data and str(data)})
    except LakestreamError as error:
        fail(str(error))


def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(work)
    except LakestreamError as error:
        fail(str(error))
