"""`lakestream broker --workers N`: a broker process for each core, behind one configuration.

Each worker is a broker of its own, with an id and a port of its own: a client goes to the address of the very broker
that its metadata names, and a group's coordinator is one process, so a port that the system hands out at random would
bring half of its calls to the wrong one. Any of the ports is good to begin with.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from lakestream.cli.local.children import Child, Children
from lakestream.errors import RequestError
from lakestream.runtime import format_host_port, parse_host_port
from lakestream.settings import Settings

log = logging.getLogger(__name__)

STOP_S = 25.0
"""For what workers took in; whoever stops us waits 30 s as a rule."""


async def run_workers(
    settings: Settings, arguments: Sequence[str], ready: Callable[[], None], stop: asyncio.Event
) -> None:
    """Keeps the workers running until `stop`, then drains them all. `arguments` are those that all have in common.
    Raises `RequestError` if none of them can serve before somebody changes something."""
    workers = [
        Child(f"worker {index}", ("broker", *worker_arguments(settings, index), *arguments), log=None)
        for index in range(settings.broker.workers)
    ]
    children = Children(_tell, stop_s=STOP_S)
    for worker in workers:
        children.start(worker)
    stopping = asyncio.ensure_future(stop.wait())
    settling = asyncio.ensure_future(asyncio.gather(*(worker.settled.wait() for worker in workers)))
    try:
        await asyncio.wait((stopping, settling), return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            if all(worker.refused and not worker.serving.is_set() for worker in workers):
                raise RequestError("no worker can serve: what each of them said stands above")
            ready()
            await stopping
    finally:
        stopping.cancel()
        settling.cancel()
        await children.stop(None, asyncio.Event())


def worker_arguments(settings: Settings, index: int) -> list[str]:
    """What is a worker's own: number, ports, and what clients are told; its id only if the first has a fixed one."""
    place, monitor_port = settings.broker, settings.monitor.port
    options = {"--worker": index, "--host": place.host, "--port": place.port + index}
    if place.advertised:
        try:
            host, port = parse_host_port(place.advertised)
        except ValueError as error:
            raise RequestError(f"the advertised address cannot be used: {error}") from error
        options["--advertised"] = format_host_port(host, port + index)
    if monitor_port is not None:
        options["--monitor-port"] = monitor_port + index if monitor_port else 0
    if place.id is not None:
        options["--id"] = place.id + index
    if place.zone:
        options["--zone"] = place.zone
    return [str(each) for option in options.items() for each in option]


def _tell(worker: Child) -> None:
    if worker.serving.is_set():
        log.info("%s serves", worker.name)
    else:
        log.error("%s", worker.failure)
