"""`lakestream table maintain`: the upkeep of tables, now instead of at the pipeline's pace."""

import asyncio
import os
from dataclasses import asdict
from typing import Annotated

import typer

from lakestream.cli.console import emit_json, fail, out, show_table
from lakestream.cli.options import Json
from lakestream.cli.services.serving import Config, Data
from lakestream.errors import LakestreamError
from lakestream.node.maintain import run_maintenance
from lakestream.settings import load


def maintain(
    topic: Annotated[str | None, typer.Argument(help="Only this topic's table.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    data: Data = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Apply retention to tables, merge their small files, count their keys and delete what nothing names any more.

    A running pipeline does all this by itself; both at once is safe. It works on the bucket and the metadata store
    directly, so it needs the same --data or --config as a broker."""
    try:
        settings = load(config, os.environ, {"data_dir": data and str(data)})
        steps = asyncio.run(run_maintenance(settings, topic, dry_run=dry_run))
    except LakestreamError as error:
        fail(str(error))
    if json:
        for step in steps:
            emit_json(asdict(step) | {"done": not dry_run})
        return
    if steps:
        show_table(
            ["topic", "action", "about", "files", "rows", "bytes"],
            [
                (
                    step.topic,
                    step.action,
                    step.about,
                    *(f"{n:,}" if n else "" for n in (step.files, step.rows, step.size_bytes)),
                )
                for step in steps
            ],
        )
    if not steps:
        out.print("Nothing is to be done.")
    elif dry_run:
        out.print("Nothing was changed: this was a dry run.")
