"""Processes that belong to this one: started, watched, restarted, and never left behind.

Each child is the leader of its own session, so a Ctrl-C in the terminal reaches only us and we stop them in order.
If we are killed outright the kernel kills them (`PR_SET_PDEATHSIG`); Spark's JVM ends when its driver does.
"""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

STOP_S = 7.0
"""Time to end politely; what is left afterwards is killed."""
HOPELESS = 3
"""Exit status of a child that cannot work here: it said why in its last line, and starting it again will not help."""
_SHORT_LIFE_S = 10.0
_MAX_SHORT_LIVES = 5
_PAUSE_S = 0.5
_PR_SET_PDEATHSIG = 1
_LAST_WORDS_BYTES = 8192


@dataclass(slots=True)
class Child:
    """`ready` is done once the child has said that it serves."""

    name: str
    arguments: Sequence[str]
    log: Path
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    process: asyncio.subprocess.Process | None = None


class Children:
    """`tell(child, sentence)` is called when one of them stops unasked. It is started again, unless it never was
    ready, says that it is hopeless, or keeps stopping."""

    def __init__(self, tell: Callable[[Child, str], None]) -> None:
        self._tell = tell
        self._tasks: list[asyncio.Task[None]] = []
        self._children: list[Child] = []
        self._stopping = False

    def start(self, child: Child) -> "asyncio.Task[None]":
        """The task ends only if the child is given up."""
        self._children.append(child)
        task = asyncio.create_task(self._keep(child), name=child.name)
        self._tasks.append(task)
        return task

    async def stop(self) -> None:
        """All of them, politely first. Returns when none is left."""
        self._stopping = True
        running = [child for child in self._children if _alive(child)]
        for child in running:
            _signal(child, signal.SIGTERM)
        waits = [asyncio.create_task(child.process.wait()) for child in running if child.process]
        if waits:
            await asyncio.wait(waits, timeout=STOP_S)
        for child in running:
            _signal(child, signal.SIGKILL)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        short_lives = 0
        while not self._stopping:
            started = loop.time()
            status = await self._run(child)
            if self._stopping:
                return
            short_lives = short_lives + 1 if loop.time() - started < _SHORT_LIFE_S else 0
            reason = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
            if status == HOPELESS or not child.ready.is_set():
                self._tell(child, last_words(child.log) or f"{child.name} stopped ({reason}); see {child.log}")
                return
            if short_lives >= _MAX_SHORT_LIVES:
                self._tell(child, f"{child.name} keeps stopping ({reason}) and is given up; see {child.log}")
                return
            self._tell(child, f"{child.name} stopped ({reason}) and is started again; see {child.log}")
            await asyncio.sleep(_PAUSE_S * short_lives)

    async def _run(self, child: Child) -> int:
        """One life of the child, from start to exit status. What it started goes with it."""
        reading, writing = os.pipe()
        parent = os.getpid()
        try:
            with child.log.open("ab") as log:
                child.process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-m", "lakestream.cli", *child.arguments, "--ready-fd", str(writing)),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(writing,),
                    start_new_session=True,
                    preexec_fn=lambda: _die_with(parent),
                )
        finally:
            os.close(writing)
        announced = asyncio.create_task(_announce(reading, child.ready))
        if self._stopping:
            _signal(child, signal.SIGKILL)
        status = await child.process.wait()
        announced.cancel()
        _signal(child, signal.SIGKILL)
        return status


def last_words(log: Path) -> str:
    """The message of the last complete line of a child's log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LAST_WORDS_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return ""
    line = lines[-1].decode(errors="replace") if lines else ""
    try:
        return str(msgspec.json.decode(line)["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return line.removeprefix("error ")


_libc = ctypes.CDLL(None)


def _die_with(parent: int) -> None:
    """Runs in the child between fork and exec."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


async def _announce(reading: int, ready: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    stream = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(reading, "rb"))
    try:
        if await stream.readline():
            ready.set()
    finally:
        transport.close()


def _alive(child: Child) -> bool:
    return child.process is not None and child.process.returncode is None


def _signal(child: Child, number: signal.Signals) -> None:
    """To the whole group: a child's own children must not outlive it."""
    if child.process is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.process.pid, number)
