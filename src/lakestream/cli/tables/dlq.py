"""`lakestream dlq`: dead letters, records of typed topics whose value does not fit their schema."""

import typer

from lakestream.cli.tables.replay import replay

app = typer.Typer(no_args_is_help=True, help=__doc__)


@app.callback()
def dlq() -> None:
    """Dead letters: records of typed topics whose value does not fit their schema."""


app.command()(replay)
