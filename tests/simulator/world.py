"""Processes that crash and sleep, a clock per process, and the dice that decide.

Everything random comes from one seeded generator, asked in a deterministic order.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NoReturn, TypeVar

from lakestream.errors import LakestreamError, Unavailable
from lakestream.runtime import Runtime
from simulator.faults import NEAR_S, Faults
from simulator.loop import START_S, Event, SimulatedLoop

T = TypeVar("T")

_process: ContextVar["Process | None"] = ContextVar("process", default=None)
_NOBODY = Context()

EPOCH_MS: Final = 1_700_000_000_000
AT_ONCE: Final = 0.4
"""The share of operations that nothing gets in between, so that steps are short and long."""
AT_ONCE_CALM: Final = 0.8
CALM_S: Final = 0.4
"""Once the faults have stopped, everything late has arrived and every sleeper is awake after this time."""


class Crashed(BaseException):
    """Ends every path of a process that is no more; no handler may catch it."""


@dataclass(eq=False, slots=True)
class Process:
    """A broker, a pipeline or a client. Tasks started from its code belong to it and die with it."""

    name: str
    world: "World"
    skew_ms: int = 0
    alive: bool = True
    paused_until_s: float = 0.0
    latency_most_s: float = NEAR_S
    tasks: list["asyncio.Task[Any]"] = field(default_factory=list)
    context: Context = field(default_factory=Context)
    on_crash: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.context.run(_process.set, self)

    def now_ms(self) -> int:
        return self.world.now_ms() + self.skew_ms

    def runtime(self) -> Runtime:
        return Runtime(self, self.world.random)

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        return self.world.loop.create_task(work, context=self.context)

    def crash(self) -> None:
        """At once: no clean-up, no goodbye."""
        if self.alive:
            self.world.trace(f"{self.name} crashes")
            self.alive = False
            for task in self.tasks:
                task.cancel()
            self.on_crash()


class World:
    def __init__(self, loop: SimulatedLoop, random: Random, faults: Faults) -> None:
        self.loop = loop
        self.random = random
        self.faults = faults
        self._odds = faults.odds()
        self._aims = list(faults.aims)
        self._hits = dict.fromkeys(faults.aims, 0)
        self._away_until_s: dict[str, float] = {}
        self.is_calm = False
        self.settled = asyncio.Event()
        """Nothing is late any more."""
        self._at_once = AT_ONCE
        self.lines: list[str] = []
        self._late: list[Event] = []
        self.processes: list[Process] = []
        self._tasks: list[asyncio.Task[Any]] = []
        """Every task there ever was: histories are short, and keeping them costs less than burying each."""
        loop.create_task = self._new_task  # type: ignore[assignment,method-assign]

    def now_ms(self) -> int:
        """What a clock that is right shows."""
        return EPOCH_MS + round(self.loop.now_s * 1000)

    def trace(self, line: str) -> None:
        self.lines.append(f"{self.loop.now_s - START_S:10.4f} {line}")

    def process(self, name: str) -> Process:
        process = Process(name, self, skew_ms=self._draw_skew_ms())
        process.latency_most_s = self.random.choice(self.faults.latencies_s)
        self.processes.append(process)
        return process

    def calm(self) -> None:
        """From now on nothing goes wrong. What is on its way arrives soon, in its order, and sleepers wake."""
        self.faults = Faults()
        self.is_calm = True
        self._at_once = AT_ONCE_CALM
        self._odds = ()
        self._aims.clear()
        self._away_until_s.clear()
        for process in self.processes:
            process.paused_until_s, process.latency_most_s = 0.0, NEAR_S
        waiting = sorted(event for event in self._late if event.when() > self.loop.now_s)
        self._late = [
            self.loop.hurry(event, CALM_S * number / len(waiting)) for number, event in enumerate(waiting, start=1)
        ]

    def take_away(self, place: str, for_s: float) -> None:
        """Nothing reaches that place for so long."""
        if not self.is_calm:
            self._away_until_s[place] = self.loop.time() + for_s
            self.trace(f"the {place} is away for {for_s:.3f} s")

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    async def operation(self, name: str, apply: Callable[[], T], *, place: str = "store") -> T:
        """One call over the network: a request, its effect, a reply. Each may go wrong on its own. A process that
        sleeps begins nothing; one that falls asleep does so before the effect or after it."""
        process, random = _process.get(), self.random.random
        if process is not None and process.paused_until_s > self.loop.now_s:
            await self._sleep_on(process)
        fault = "" if self.is_calm else self._draw(name)
        before = random() < 0.5
        if fault or self._away_until_s:
            return await self._try(process, name, apply, place, fault, before)
        # From here on only what `_try` would do with no fault, without its price.
        if process is not None and not process.alive:
            raise Crashed(process.name)
        delay_s = (random() - self._at_once) * (NEAR_S if process is None else process.latency_most_s)
        if delay_s <= 0.0:
            return apply()
        if before:
            await self.sleep(delay_s)
            if process is not None and (process.paused_until_s > self.loop.now_s or not process.alive):
                await self._sleep_on(process)
            return apply()
        result = apply()
        await self.sleep(delay_s)
        if process is not None and (process.paused_until_s > self.loop.now_s or not process.alive):
            await self._sleep_on(process)
        return result

    async def _try(
        self, process: Process | None, name: str, apply: Callable[[], T], place: str, fault: str, before: bool
    ) -> T:
        if fault == "outage":
            self._away_until_s[place] = self.loop.time() + self.random.random() * self.faults.outage_most_s
            self.trace(f"the {place} is away for {self._away_until_s[place] - self.loop.time():.3f} s")
        if before:
            await self._travel(process, fault)
        elif process is not None and not process.alive:
            raise Crashed(process.name)
        if fault == "lost request" or self._away_until_s.get(place, 0.0) > self.loop.time():
            self.trace(f"{_name(process)} {name}: the request is lost")
            return await self._give_up(process, "the request was lost")
        if fault in ("late request", "repeated request"):
            delay_s = self.random.uniform(0.01, self.faults.late_most_s)
            copy = "a copy of the" if fault == "repeated request" else "the"
            self.trace(f"{_name(process)} {name}: {copy} request will arrive {delay_s:.3f} s late")
            self._late.append(self.loop.call_later(delay_s, self._arrive_late, _name(process), name, apply))
            if fault == "late request":
                return await self._give_up(process, "no reply in time")
        result = apply()
        if not before:
            await self._travel(process, fault)
        if fault == "lost reply":
            self.trace(f"{_name(process)} {name}: done, but the reply is lost")
            return await self._give_up(process, "the reply was lost")
        return result

    def _draw(self, name: str) -> str:
        """At most one thing goes wrong with an operation."""
        for aim in self._aims:
            if name.startswith(aim.operation) and self.random.random() < aim.chance:
                self._hits[aim] += 1
                if self._hits[aim] >= aim.hits_most:
                    self._aims.remove(aim)
                return aim.kind
        drawn = self.random.random()
        if self._odds and drawn < self._odds[-1][0]:
            return next(kind for bound, kind in self._odds if drawn < bound)
        return ""

    async def _give_up(self, process: Process | None, message: str) -> NoReturn:
        """Silence is noticed only by waiting."""
        if self.faults.silence_most_s:
            await asyncio.sleep(self.random.random() * self.faults.silence_most_s)
            if process is not None:
                await self._sleep_on(process)
        raise Unavailable(message)

    def _arrive_late(self, who: str, name: str, apply: Callable[[], Any]) -> None:
        try:
            outcome = apply()
        except LakestreamError as error:
            outcome = error
        self.trace(f"{who} {name}: the late request arrives: {type(outcome).__name__}")

    async def _travel(self, process: Process | None, fault: str) -> None:
        """Time passes; the process may crash or fall asleep on the way."""
        latency_s = self.random.random() * (NEAR_S if process is None else process.latency_most_s)
        if process is not None and fault:
            if fault == "crash":
                process.crash()
            elif fault == "pause":
                pause_s = self.faults.pause_most_s * self.random.random() ** 2
                self.trace(f"{process.name} sleeps for {pause_s:.3f} s")
                process.paused_until_s = self.loop.time() + pause_s
            elif fault == "slow":
                latency_s += self.random.random() * self.faults.slow_most_s
            elif fault == "clock jump":
                process.skew_ms = self._draw_skew_ms()
                self.trace(f"the clock of {process.name} jumps to {process.skew_ms} ms")
        await self.sleep(latency_s)
        if process is not None:
            if process.paused_until_s > self.loop.now_s:
                await self._sleep_on(process)
            elif not process.alive:
                raise Crashed(process.name)

    async def _sleep_on(self, process: Process) -> None:
        while process.alive and process.paused_until_s > self.loop.now_s:
            await self.sleep(min(CALM_S, process.paused_until_s - self.loop.now_s))
        if not process.alive:
            raise Crashed(process.name)

    async def done(self, task: "asyncio.Task[Any]", *, within_s: float) -> bool:
        """Whether the task ended in time. It is waited for, not awaited: its outcome is its own."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        timer = self.loop.call_later(within_s, _wake, waiter, context=_NOBODY)
        task.add_done_callback(lambda _: _wake(waiter), context=_NOBODY)
        try:
            await waiter
        finally:
            timer.cancel()
        return task.done()

    def sleep(self, delay_s: float) -> "asyncio.Future[None]":
        """To be awaited. Cheaper than asyncio's, which takes its timer away when it is cancelled."""
        future: asyncio.Future[None] = self.loop.create_future()
        self.loop.call_later(delay_s, _wake, future, context=_NOBODY)
        return future

    def end(self) -> None:
        """Nothing runs any more, and no outcome is left unheard."""
        running = [task for task in self._tasks if task.cancel()]
        self.loop.run_until_complete(_ended(running))
        for task in self._tasks:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                error.__traceback__ = None
        # Most of a history goes here, and not when somebody looks for garbage, which costs more.
        self._tasks.clear()
        for process in self.processes:
            process.tasks.clear()
        self.loop.forget()

    def _draw_skew_ms(self) -> int:
        skew_ms = self.faults.skew_most_ms
        return self.random.randint(-skew_ms, skew_ms) if skew_ms else 0

    def _new_task(
        self, work: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(work, loop=self.loop, name=name, context=context)
        process = context.get(_process) if context is not None else _process.get()
        self._tasks.append(task)
        if process is not None:
            process.tasks.append(task)
        return task


async def _ended(tasks: Sequence["asyncio.Task[Any]"]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def current_process() -> Process | None:
    """Whose code runs; the sender, when a late request arrives."""
    return _process.get()


def _wake(sleeper: "asyncio.Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_result(None)


def _name(process: Process | None) -> str:
    return process.name if process is not None else "somebody"


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("it waited")
