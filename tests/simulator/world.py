"""Processes that crash and sleep, a clock per process, and the dice that decide.

Everything random comes from one seeded generator, asked in a deterministic order.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from lakestream.errors import LakestreamError, Unavailable
from lakestream.runtime import Runtime

T = TypeVar("T")

_process: ContextVar["Process | None"] = ContextVar("process", default=None)


class Crashed(BaseException):
    """Ends every path of a process that is no more; no handler may catch it."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Chances per operation, and how long things take. All zero: a calm world."""

    lost_request: float = 0.0
    lost_reply: float = 0.0
    late_request: float = 0.0
    pause: float = 0.0
    slow: float = 0.0
    crash: float = 0.0
    pause_most_s: float = 30.0
    latency_most_s: float = 0.005
    skew_most_ms: int = 0


@dataclass(eq=False, slots=True)
class Process:
    """A broker, a pipeline or a client. Tasks started from its code belong to it and die with it."""

    name: str
    world: "World"
    skew_ms: int = 0
    alive: bool = True
    paused_until_s: float = 0.0
    tasks: dict[int, "asyncio.Task[Any]"] = field(default_factory=dict)
    on_crash: Callable[[], None] = lambda: None

    def now_ms(self) -> int:
        return round(self.world.loop.time() * 1000) + self.skew_ms

    def runtime(self) -> Runtime:
        return Runtime(self, self.world.random)

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        context = copy_context()
        context.run(_process.set, self)
        return self.world.loop.create_task(work, context=context)

    def crash(self) -> None:
        """At once: no clean-up, no goodbye."""
        if self.alive:
            self.world.trace(f"{self.name} crashes")
            self.alive = False
            for task in list(self.tasks.values()):
                task.cancel()
            self.on_crash()


class World:
    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random, faults: Faults) -> None:
        self.loop = loop
        self.random = random
        self.faults = faults
        self.lines: list[str] = []
        self.late: list[asyncio.TimerHandle] = []
        self.processes: list[Process] = []
        self._tasks = 0
        loop.set_task_factory(self._new_task)

    def trace(self, line: str) -> None:
        self.lines.append(f"{self.loop.time() - 1000:10.4f} {line}")

    def process(self, name: str) -> Process:
        skew = self.faults.skew_most_ms
        process = Process(name, self, skew_ms=self.random.randint(-skew, skew) if skew else 0)
        self.processes.append(process)
        return process

    def calm(self) -> None:
        """From now on nothing goes wrong; what was already on its way still arrives."""
        self.faults = Faults(latency_most_s=self.faults.latency_most_s)
        for process in self.processes:
            process.paused_until_s = 0.0

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    async def operation(self, name: str, apply: Callable[[], T]) -> T:
        """One call over the network: a request, its effect, a reply. Each may go wrong on its own."""
        process = _process.get()
        fault = self._draw()
        before = self.random.random() < 0.5
        if before:
            await self._travel(process, fault)
        elif process is not None and not process.alive:
            raise Crashed(process.name)
        if fault == "lost request":
            self.trace(f"{_name(process)} {name}: the request is lost")
            raise Unavailable("the request was lost")
        if fault == "late request":
            delay_s = self.random.uniform(0.01, 5.0)
            self.trace(f"{_name(process)} {name}: the request will arrive {delay_s:.3f} s late")
            self.late.append(self.loop.call_later(delay_s, self._arrive_late, _name(process), name, apply))
            raise Unavailable("no reply in time")
        result = apply()
        if not before:
            await self._travel(process, fault)
        if fault == "lost reply":
            self.trace(f"{_name(process)} {name}: done, but the reply is lost")
            raise Unavailable("the reply was lost")
        return result

    def _draw(self) -> str:
        """At most one thing goes wrong with an operation."""
        faults = self.faults
        left = self.random.random()
        for name, chance in (
            ("lost request", faults.lost_request),
            ("lost reply", faults.lost_reply),
            ("late request", faults.late_request),
            ("pause", faults.pause),
            ("slow", faults.slow),
            ("crash", faults.crash),
        ):
            left -= chance
            if left < 0:
                return name
        return ""

    def _arrive_late(self, who: str, name: str, apply: Callable[[], Any]) -> None:
        try:
            outcome = apply()
        except LakestreamError as error:
            outcome = error
        self.trace(f"{who} {name}: the late request arrives: {type(outcome).__name__}")

    async def _travel(self, process: Process | None, fault: str) -> None:
        """Time passes; the process may crash or fall asleep on the way."""
        latency_s = self.random.random() * self.faults.latency_most_s
        if process is not None and fault:
            if fault == "crash":
                process.crash()
            elif fault == "pause":
                pause_s = self.random.uniform(0.0, self.faults.pause_most_s)
                self.trace(f"{process.name} sleeps for {pause_s:.3f} s")
                process.paused_until_s = self.loop.time() + pause_s
            elif fault == "slow":
                latency_s *= 50
        await asyncio.sleep(latency_s)
        while process is not None and process.alive and process.paused_until_s > self.loop.time():  # noqa: ASYNC110
            await asyncio.sleep(min(1.0, process.paused_until_s - self.loop.time()))
        if process is not None and not process.alive:
            raise Crashed(process.name)

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
    ) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
        context = options.get("context")
        process = context.get(_process) if context is not None else _process.get()
        self._tasks += 1
        task.set_name(f"task-{self._tasks}")
        if process is not None:
            number = self._tasks
            process.tasks[number] = task
            task.add_done_callback(lambda done: _reap(process, number, done))
        return task


def _reap(process: Process, number: int, task: "asyncio.Task[Any]") -> None:
    process.tasks.pop(number, None)
    if not process.alive and not task.cancelled():
        task.exception()


def _name(process: Process | None) -> str:
    return process.name if process is not None else "somebody"


def run_now(work: Awaitable[T]) -> T:
    """The result of a coroutine that never waits."""
    iterator = work.__await__()
    try:
        next(iterator)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("it waited")
