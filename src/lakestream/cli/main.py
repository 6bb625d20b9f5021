"""The `lakestream` command. Its subcommands load when they are called.

`topic list` must not pay for what a broker or Spark imports, so this module alone knows the
subcommands by name and imports one of them when it runs.
"""

import gc
import importlib
import sys
from types import ModuleType
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

COMMANDS = {
    "up": "Start everything on this machine: brokers, HTTP door, Spark pipeline.",
    "cluster": "Start a whole cluster on this machine, on PostgreSQL and an S3 server.",
    "topic": "Create, list, describe and delete topics.",
    "schema": "Register, list and check the schemas of values.",
    "produce": "Write records to a topic, from the command line or line by line from standard input.",
    "consume": "Read records from a topic.",
    "group": "List, describe, rewind and delete consumer groups.",
    "table": "Look at a topic's Iceberg table: query it with SQL, also as it was; tag it, roll it back.",
    "mcp": "Serve the tools for agents over standard input and output.",
    "dlq": "Show records of typed topics that do not fit their schema; try them again.",
    "bucket": "Show whose a bucket is; make one that was moved or copied usable at its new address.",
    "recover": "Rebuild a lost metadata store from the bucket.",
    "cost": "Estimate the bill of a workload, beside that of Apache Kafka.",
    "demo": "Write a steady stream of realistic orders.",
    "demo-agent": "Let an agent check orders as they come in, with evidence.",
    "broker": "Run a Kafka broker, or one for each core.",
    "http": "Run the HTTP door: Iceberg REST catalog and health.",
    "pipeline": "Run the Spark pipeline that moves records into their tables.",
}
"""Each is a module of that name, with _ for -, in its folder, with a Typer instance called `app`."""
FOLDERS = {
    **dict.fromkeys(("up", "cluster"), "local"),
    **dict.fromkeys(("broker", "http", "pipeline"), "services"),
    **dict.fromkeys(("topic", "schema", "produce", "consume", "group", "demo", "demo-agent", "mcp"), "clients"),
    **dict.fromkeys(("table", "dlq"), "tables"),
    **dict.fromkeys(("bucket", "recover"), "buckets"),
}
"""What has none is in `lakestream.cli` itself."""


class _LazyGroup(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Name and help only: enough for `--help`, without importing anything."""
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None:
            folder = f".{FOLDERS[name]}" if name in FOLDERS else ""
            command = get_command(_load(f"lakestream.cli{folder}.{name.replace('-', '_')}").app)
        return name, command, rest


def _load(module: str) -> Any:
    """What a process imports stays: looking for garbage in it costs a sixth of a broker's start, and then pauses.

    kio loads hypothesis where that is installed, at a third of a broker's start, and no command needs it: `None` says
    that it is not there."""
    sys.modules.setdefault("hypothesis", cast(ModuleType, None))
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        gc.freeze()
        gc.enable()


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def lakestream() -> None:
    """A streaming engine whose log is the table: Kafka in front, Iceberg underneath."""


def main() -> None:
    app(prog_name="lakestream")
