"""Commands of the command line in this process."""

import asyncio
from collections.abc import Sequence

from click.testing import Result
from typer import Typer
from typer.testing import CliRunner


async def invoke(app: Typer, arguments: Sequence[str]) -> Result:
    """On a thread: a command has an event loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, app, arguments)
