"""Faults of real processes: SIGKILL and SIGSTOP at moments that a seed chooses, restart and SIGCONT some time later;
and SIGTERM, which is no fault: the process ends by itself, and is started again."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from support.worlds.processes import Running

COMMITTED = "are in their tables"
"""A pipeline says so once its first commit is done."""


@dataclass
class Victim:
    """One process that is killed and started again, or paused and woken. `due_s` is when its trouble ends."""

    name: str
    start: Callable[[], Running]
    down_s: float
    pause_s: float
    pause_share: float = 0.5
    """How many of its faults are pauses."""
    worth_it: Callable[[Running], bool] = lambda running: True
    withdraw_share: float = 0.0
    """How often it is asked to end instead."""
    running: Running = field(init=False)
    due_s: float | None = None
    paused: bool = False
    asked_to_end: bool = False

    def __post_init__(self) -> None:
        self.running = self.start()

    @property
    def is_up(self) -> bool:
        return self.due_s is None

    def kill(self, chance: random.Random) -> None:
        self.running.kill()
        self.due_s = time.monotonic() + chance.uniform(0, self.down_s)

    def pause(self, chance: random.Random) -> None:
        self.running.process.send_signal(signal.SIGSTOP)
        self.paused = True
        self.due_s = time.monotonic() + chance.uniform(0.1, self.pause_s)

    def withdraw(self, chance: random.Random) -> None:
        self.running.process.send_signal(signal.SIGTERM)
        self.asked_to_end = True
        self.due_s = time.monotonic() + chance.uniform(0, self.down_s)

    def recover(self) -> None:
        """Whatever is wrong with it."""
        if self.asked_to_end:
            status, output = self.running.process.wait(60), self.running.output
            # Whoever is asked while it starts may have no ear for it yet.
            assert status == 0 or "listens on" not in output, f"{self.name} ended with {status}:\n{output[-4000:]}"
            self.asked_to_end = False
        if self.paused:
            self.running.process.send_signal(signal.SIGCONT)
        elif self.due_s is not None:
            self.running = self.start()
        self.paused, self.due_s = False, None


@dataclass
class Storm:
    """At least one broker serves, always: one that starts does not count."""

    brokers: list[Victim]
    pipelines: list[Victim]
    chance: random.Random
    calm_s: tuple[float, float] = (0.2, 1.5)
    kills: Counter[str] = field(default_factory=Counter)
    pauses: Counter[str] = field(default_factory=Counter)
    withdrawals: Counter[str] = field(default_factory=Counter)

    def rage(self, until: Callable[[], bool]) -> None:
        strikes_s = time.monotonic()
        while not until():
            now_s = time.monotonic()
            for victim in (*self.brokers, *self.pipelines):
                if victim.due_s is not None and now_s >= victim.due_s:
                    victim.recover()
                ended = victim.running.process.poll() is not None
                assert not victim.is_up or not ended, f"{victim.name} ended by itself:\n{victim.running.output[-4000:]}"
            if now_s >= strikes_s:
                strikes_s = now_s + self.chance.uniform(*self.calm_s)
                self._strike()
            time.sleep(0.02)

    def settle(self) -> None:
        for victim in (*self.brokers, *self.pipelines):
            victim.recover()

    def _strike(self) -> None:
        pipelines = self.chance.random() < 0.4
        group = self.pipelines if pipelines else self.brokers
        standing = [victim for victim in group if victim.is_up]
        if len(standing) < (1 if pipelines else 2):
            return
        victim = self.chance.choice(standing)
        if not pipelines and not any("listens on" in each.running.output for each in standing if each is not victim):
            return
        pauses = self.chance.random() < victim.pause_share
        withdraws = self.chance.random() < victim.withdraw_share
        if not victim.worth_it(victim.running):
            return
        if withdraws:
            victim.withdraw(self.chance)
            self.withdrawals[victim.name.split()[0]] += 1
            return
        if pauses:
            victim.pause(self.chance)
        else:
            victim.kill(self.chance)
        (self.pauses if pauses else self.kills)[victim.name.split()[0]] += 1
