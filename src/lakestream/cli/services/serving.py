"""What the commands that run a part of the node share: settings, log lines, readiness, a clean end."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
import uvloop

from lakestream.cli.local.children import REFUSED
from lakestream.cli.services import logs
from lakestream.errors import LakestreamError, RequestError
from lakestream.settings import Settings, load

T = TypeVar("T")

Data = Annotated[Path | None, typer.Option("--data", envvar="DATA", help="Directory for bucket and metadata.")]
Config = Annotated[
    Path | None, typer.Option("--config", envvar="LAKESTREAM_CONFIG", help="A settings file (TOML).", exists=True)
]
MonitorPort = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port for /metrics, /health and /ready; 0: any that is free.")
]
ReadyFd = Annotated[int | None, typer.Option("--ready-fd", hidden=True)]


def serve(
    run: Callable[[Settings, Callable[[], None], asyncio.Event], Awaitable[T]],
    config: Path | None,
    overrides: Mapping[str, Any],
    ready_fd: int | None,
    kind: str,
    worker: int | None = None,
) -> T:
    """Runs `run(settings, ready, stop)`, a process of that kind, until it ends or a signal sets `stop`. A request error
    (a setting, a port, no Java) is one sentence and a status that says: somebody has to change something. `worker`:
    which of several processes it is that write to one place."""
    logs.to_stderr()

    async def main() -> T:
        settings = load(config, os.environ, overrides)
        about: dict[str, Any] = {"process": kind}
        if worker is not None:
            about["worker"] = worker
        if kind == "broker" and settings.broker.id is not None:
            about["broker"] = settings.broker.id
        logs.to_stderr(settings.log_format, about)
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        return await run(settings, lambda: _announce(ready_fd), stop)

    try:
        return uvloop.run(main())
    except RequestError as error:
        _end(error, REFUSED, worker)
    except LakestreamError as error:
        _end(error, 1, worker)


def _announce(ready_fd: int | None) -> None:
    if ready_fd is not None:
        os.write(ready_fd, b"ready\n")
        os.close(ready_fd)


def _end(error: LakestreamError, status: int, worker: int | None) -> NoReturn:
    whose = "" if worker is None else f"worker {worker}: "
    sys.stderr.write(f"error {whose}{error}\n")
    raise typer.Exit(status)
