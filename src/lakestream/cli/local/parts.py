"""The parts of a node under one command: started in order, kept alive, stopped in order."""

import asyncio
import fcntl
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from lakestream.cli.console import complain, fail, say
from lakestream.cli.local.children import Child, Children
from lakestream.cli.local.greeting import Greeting

_SETTLE_S = 10.0
"""How long the greeting waits for brokers that neither serve nor end."""
_SERVERS_S = 60.0
"""How long brokers wait for the servers that they need."""


async def run_parts(greeting: Greeting, started: float, servers: Sequence[Child] = ()) -> int:
    """The exit status: 0 if somebody asked for the end, 1 if no broker can serve until something is changed.

    One kind of process after the other, so that the processors are the brokers' until those serve. `servers` are what
    all of them need: they are started first and stopped last."""
    children, needed = Children(greeting.on_change), Children(greeting.on_change)
    stop = asyncio.Event()
    hurry = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, lambda: (hurry if stop.is_set() else stop).set())
    stopping = asyncio.create_task(stop.wait())
    starting = asyncio.create_task(_start(greeting, children, needed, servers, started))
    try:
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set() and not starting.result():
            return 1
        await stopping
        return 0
    finally:
        starting.cancel()
        stopping.cancel()
        if greeting.shown:
            if greeting.pipeline is None:
                say("Stopping. No pipeline runs, so tables may lack what was acknowledged; the log has it.")
            else:
                say("Stopping: what was acknowledged is moved into its tables. Ctrl-C again ends it at once.")
        words = await children.stop(greeting.pipeline, hurry)
        await needed.stop(None, hurry)
        if greeting.shown and greeting.pipeline is not None:
            say(f"Stopped: {words}." if words else "Stopped. Tables may lack what the pipeline had not moved yet.")


async def _start(
    greeting: Greeting, children: Children, needed: Children, servers: Sequence[Child], started: float
) -> bool:
    """False: nothing serves, and nothing will by itself."""
    for server in servers:
        say(f"Starting {server.name} …")
        needed.start(server)
    await _settled(*servers, timeout_s=_SERVERS_S)
    missing = [server for server in servers if not server.serving.is_set()]
    for server in missing:
        complain(server.failure or f"{server.name} does not answer; see {server.log}")
    if missing:
        return False
    if servers:
        say("Starting brokers …")
    for door in greeting.brokers:
        children.start(door.child)
    await _settled(*(door.child for door in greeting.brokers))
    if refusals := greeting.refusals():
        for sentence in refusals:
            complain(sentence)
        return False
    greeting.show(time.monotonic() - started)
    for door in greeting.http:
        children.start(door.child)
    await _settled(*(door.child for door in greeting.http))
    if greeting.pipeline is not None:
        children.start(greeting.pipeline)
    return True


async def _settled(*children: Child, timeout_s: float = _SETTLE_S) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            for child in children:
                await child.settled.wait()


def lock_folder(data: Path) -> IO[str]:
    """Held while we live; the kernel lets go of it when we die, however that happens."""
    try:
        (data / "logs").mkdir(parents=True, exist_ok=True)
        lock = (data / "lock").open("a+")
    except OSError as error:
        fail(f"the data directory {data} cannot be used: {error.strerror}; choose another with DATA=…")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        owner = lock.read().strip()
        by = f" by process {owner}" if owner else ""
        fail(f"the data directory {data} is in use{by}: stop that lakestream, or choose another with DATA=…")
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock
