"""Processes that belong to this one: started, watched, restarted, and never left behind.

Each child is the leader of its own session, so a Ctrl-C in the terminal reaches only us and we stop them in order.
If we are killed outright the kernel kills them (`PR_SET_PDEATHSIG`); Spark's JVM ends when its driver does.
"""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

LAST_STOP_S = 600.0
"""For the last of them, which bounds its own end by a setting."""
STOP_S = 7.0
"""Time to end politely; what is left afterwards is killed."""
REFUSED = 3
"""Exit status of a child that cannot work as things are: its last line says why, and what to do."""
LONGEST_PAUSE_S = 30.0
_FIRST_PAUSE_S = 0.5
_PROBE_S = 0.1
_LONG_LIFE_S = 10.0
"""A child that lived so long starts again after the first pause."""
_PR_SET_PDEATHSIG = 1
_LAST_WORDS_BYTES = 8192


@dataclass(slots=True)
class Child:
    """`serving` is set while the child serves, `settled` from the first time on that it served or ended; `failure` is
    the sentence about its last end. A child is one of our commands with `arguments`, which says itself when it serves,
    or another `program`, which serves once `probe` says so."""

    name: str
    arguments: Sequence[str]
    log: Path | None
    """None: it writes where we write."""
    program: Sequence[str] = ()
    probe: Callable[[], Awaitable[bool]] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_signal: signal.Signals = signal.SIGTERM
    user: int | None = None
    serving: asyncio.Event = field(default_factory=asyncio.Event)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    failure: str = ""
    refused: bool = False
    process: asyncio.subprocess.Process | None = None


class Children:
    """Children that end unasked are started again for as long as we live, after pauses that grow to `LONGEST_PAUSE_S`:
    what stood in the way (a port, no Java, a full disk) may go, and the others serve meanwhile.

    `on_change(child)` is called when one begins to serve, and when one ends in another way than the time before."""

    def __init__(self, on_change: Callable[[Child], None], stop_s: float = STOP_S) -> None:
        self._on_change = on_change
        self._stop_s = stop_s
        self._tasks: list[asyncio.Task[None]] = []
        self._children: list[Child] = []
        self._stop = asyncio.Event()

    def start(self, child: Child) -> None:
        self._children.append(child)
        keeping = asyncio.create_task(self._keep(child), name=child.name)
        keeping.add_done_callback(lambda _: self._let_go(child, keeping))
        self._tasks.append(keeping)

    async def stop(self, last: Child | None, hurry: asyncio.Event) -> str:
        """All of them, politely first. `last` is told to stop when the others have ended: it finishes what they left,
        in a time of its own, unless somebody is in a `hurry`. Returns when none is left, with its last sentence."""
        self._stop.set()
        await _end([child for child in self._children if child is not last and _alive(child)], self._stop_s)
        words = ""
        if last is not None and _alive(last):
            log_bytes = _size(last.log)
            ending = asyncio.create_task(_end([last], LAST_STOP_S))
            hurried = asyncio.create_task(hurry.wait())
            await asyncio.wait((ending, hurried), return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
            if not ending.done():
                _signal(last, signal.SIGKILL)
            await ending
            words = _last_words(last.log, log_bytes)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return words

    async def _keep(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        pause_s = _FIRST_PAUSE_S
        told = ""
        while not self._stop.is_set():
            started = loop.time()
            log_bytes = _size(child.log)
            try:
                status = await self._run(child)
                child.refused = status == REFUSED
                child.failure = _failure(child, status, log_bytes)
            except OSError as error:
                child.failure = f"{child.name} cannot be started: {error}"
            if self._stop.is_set():
                return
            if child.serving.is_set():
                told = ""
            child.serving.clear()
            child.settled.set()
            if child.failure != told:
                told = child.failure
                self._on_change(child)
            if loop.time() - started >= _LONG_LIFE_S:
                pause_s = _FIRST_PAUSE_S
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _let_go(self, child: Child, keeping: "asyncio.Task[None]") -> None:
        """Nobody starts the child again after an error that nobody foresaw: that is said, whoever waits for it."""
        error = None if keeping.cancelled() else keeping.exception()
        if error is not None:
            child.failure = f"{child.name} is not started again: {error!r}"
            child.settled.set()
            self._on_change(child)

    def _serves(self, child: Child) -> None:
        child.serving.set()
        child.settled.set()
        self._on_change(child)

    async def _run(self, child: Child) -> int:
        """One life of the child, from start to exit status. What it started goes with it."""
        reading, writing = os.pipe()
        parent = os.getpid()
        try:
            ours = (sys.executable, "-m", "lakestream.cli", *child.arguments, "--ready-fd", str(writing))
            with child.log.open("ab") if child.log else nullcontext() as log:
                child.process = await asyncio.create_subprocess_exec(
                    *(child.program or ours),
                    env=os.environ | dict(child.environment),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(writing,),
                    start_new_session=True,
                    preexec_fn=lambda: _begin(parent, child.user),
                )
        finally:
            os.close(writing)
        announced = asyncio.create_task(_announce(reading, child.probe, lambda: self._serves(child)))
        if self._stop.is_set():
            _signal(child, signal.SIGKILL)
        status = await child.process.wait()
        announced.cancel()
        _signal(child, signal.SIGKILL)
        return status


async def _end(running: Sequence[Child], timeout_s: float) -> None:
    """Whoever does not end in time is killed."""
    for child in running:
        _signal(child, child.stop_signal)
    waits = [asyncio.create_task(child.process.wait()) for child in running if child.process]
    if waits:
        await asyncio.wait(waits, timeout=timeout_s)
    for child in running:
        _signal(child, signal.SIGKILL)


def _failure(child: Child, status: int, log_bytes: int) -> str:
    """What the log got since it had `log_bytes` tells why; a child that refuses says it in a sentence of its own."""
    words = _last_words(child.log, log_bytes)
    if status == REFUSED and words:
        return f"{child.name}: {words}"
    reason = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
    last = f"; its last line: {words}" if words else ""
    see = f"; see {child.log}" if child.log else ""
    return f"{child.name} stopped ({reason}) and is started again{see}{last}"


def _last_words(log: Path | None, since: int) -> str:
    """The message of the last line that was written to a child's log."""
    if log is None:
        return ""
    try:
        with log.open("rb") as file:
            file.seek(max(since, _size(log) - _LAST_WORDS_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return ""
    line = lines[-1].decode(errors="replace") if lines else ""
    try:
        return str(msgspec.json.decode(line)["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return line.removeprefix("error ")


def _size(log: Path | None) -> int:
    try:
        return 0 if log is None else log.stat().st_size
    except OSError:
        return 0


_libc = ctypes.CDLL(None)


def _begin(parent: int, user: int | None) -> None:
    """In the child, before its program. asyncio's own option for the user is unknown to uvloop. The kernel forgets with
    whom to end when the user changes, so that comes first."""
    if user is not None:
        os.setuid(user)
    _die_with(parent)


def _die_with(parent: int) -> None:
    """Runs in the child between fork and exec."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


async def _announce(reading: int, probe: Callable[[], Awaitable[bool]] | None, serves: Callable[[], None]) -> None:
    if probe is not None:
        os.close(reading)
        while not await probe():  # noqa: ASYNC110  it is another's process
            await asyncio.sleep(_PROBE_S)
        serves()
        return
    loop = asyncio.get_running_loop()
    stream = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(reading, "rb"))
    try:
        if await stream.readline():
            serves()
    finally:
        transport.close()


def _alive(child: Child) -> bool:
    return child.process is not None and child.process.returncode is None


def _signal(child: Child, number: signal.Signals) -> None:
    """To the whole group: a child's own children must not outlive it."""
    if child.process is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.process.pid, number)
