"""`lakestream dlq replay`: dead letters once more, by the schemas that are known now."""

import asyncio
import os
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lakestream.cli.console import emit_json, err, fail, out, show_table
from lakestream.cli.options import Json
from lakestream.cli.services.serving import Config, Data
from lakestream.errors import LakestreamError
from lakestream.node.replay import run_replay
from lakestream.settings import load


def replay(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    data: Data = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Fill the columns of records that stayed bytes in the table, where their schema is known by now.

    Each stays at its offset, with its bytes: consumers see no change, queries see its columns. Producers, consumers and
    a running pipeline are not disturbed; an interrupted replay may simply be run again. It works on the bucket and the
    metadata store directly, so it needs the same --data or --config as a broker."""
    columns = (TextColumn("files"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[filled]:,} filled"))
    try:
        settings = load(config, os.environ, {"data_dir": data and str(data)})
        with Progress(*columns, TimeElapsedColumn(), console=err, transient=True, disable=json) as progress:
            bar = progress.add_task("", total=None, filled=0)
            done = asyncio.run(
                run_replay(
                    settings,
                    topic,
                    lambda now: progress.update(bar, completed=now.files, total=now.of_files, filled=now.filled),
                )
            )
    except LakestreamError as error:
        fail(str(error))
    reasons = done.reasons.most_common()
    if json:
        told = [{"records": count, "reason": reason} for reason, count in reasons]
        emit_json({"topic": topic, "files": done.files, "filled": done.filled, "left": done.left, "reasons": told})
        return
    out.print(f"{done.filled:,} record{'' if done.filled == 1 else 's'} filled, {done.left:,} left as they are")
    if reasons:
        show_table(["records", "why they are left"], [(f"{count:,}", reason) for reason, count in reasons])
