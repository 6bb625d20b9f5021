"""What may go wrong in a history, and how the seed chooses it.

Swarm testing: each history has some kinds of faults and lacks others, because a bug can hide behind a fault that is
always there. On top of chances that hold for every operation, a history has a few *aims*: one kind of operation that
meets one kind of fault often, such as a commit that is slept over, or a lease whose reply is lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Final, Literal

NEAR_S: Final = 0.005
"""The longest that a message is under way in a good network."""
KINDS: Final = (
    "lost request",
    "lost reply",
    "late request",
    "repeated request",
    "pause",
    "slow",
    "crash",
    "clock jump",
    "outage",
)
LOG_OPERATIONS: Final = (
    *("transact log", "transact log", "transact log", "transact log"),
    *("transact table", "transact table", "transact topics", "get log", "range log"),
    *("put wal", "put wal", "put tables", "get wal", "delete", "list"),
)
GROUP_OPERATIONS: Final = ("transact group", "transact group", "transact group", "get group", "acquire group", "range")
"""Where aims go, the likelier the more often it is named: every promise hangs on the writes to the store."""
AIMED: Final = ("lost reply", "lost reply", "late request", "late request", "pause", "pause", "slow", "slow", "crash")


@dataclass(frozen=True, slots=True)
class Aim:
    """Operations whose name begins like this meet this fault with this chance, until so many have."""

    operation: str
    kind: str
    chance: float
    hits_most: int


Theme = Literal["log", "race", "recreation", "engine", "groups"]
THEMES: Final[Mapping[Theme, tuple[Aim, ...]]] = {
    "log": (),
    "race": (Aim("transact log", "slow", chance=0.5, hits_most=20), Aim("get log", "slow", chance=0.3, hits_most=20)),
    "recreation": (Aim("transact log", "late request", chance=0.1, hits_most=3),),
    "engine": (),
    "groups": (),
}
"""What a history is about, and the aims that belong to it. A race is one of commits that arrive long after they were
sent with a collector that takes its time between its steps; nothing else disturbs them."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The chance of each kind per operation, and how long things take at the most. The default is a calm world."""

    chances: tuple[float, ...] = ()
    aims: tuple[Aim, ...] = ()
    split: float = 0.0
    """How often a call with many transactions is cut off in the middle of them."""
    pause_most_s: float = 0.0
    late_most_s: float = 0.0
    silence_most_s: float = 0.0
    """How long a caller waits for a reply before it gives up."""
    slow_most_s: float = 0.0
    outage_most_s: float = 0.0
    latencies_s: tuple[float, ...] = (NEAR_S,)
    """One of them is the longest that a message to or from a process is under way: some are far, some near."""
    skew_most_ms: int = 0

    def odds(self) -> tuple[tuple[float, str], ...]:
        """Ascending: the first bound above a number drawn from [0, 1) names what goes wrong."""
        return tuple(zip(accumulate(self.chances), KINDS, strict=False))


def draw_faults(random: Random, theme: Theme) -> Faults:
    grouped, racing = theme == "groups", theme == "race"
    operations = GROUP_OPERATIONS if grouped else LOG_OPERATIONS

    def maybe(rate: float) -> float:
        return 0.0 if racing else random.choice((0.0, 0.0, rate, rate * 3))

    skew_most_ms = random.choice((0, 0, 100, 60_000))
    aims = tuple(
        _draw_aim(random, operations)
        for _ in range(0 if racing else random.choice((0, 1, 2) if grouped else (0, 1, 2, 3)))
    )
    return Faults(
        chances=(
            maybe(0.01),
            maybe(0.02),
            maybe(0.01),
            maybe(0.01),
            maybe(0.003),
            maybe(0.02),
            maybe(0.002),
            0.005 if skew_most_ms else 0.0,
            maybe(0.002),
        ),
        aims=(*THEMES[theme], *aims),
        split=random.choice((0.0, 0.0, 0.1)),
        pause_most_s=random.choice((0.5, 3.0, 10.0, 30.0)),
        late_most_s=random.choice((0.5, 5.0)),
        silence_most_s=random.choice((0.0, 0.5, 2.0)),
        slow_most_s=2.0 if racing else random.choice((0.25, 2.0)),
        outage_most_s=random.choice((0.2, 2.0)),
        latencies_s=random.choice(((NEAR_S,), (NEAR_S,), (NEAR_S, 0.05) if grouped else (NEAR_S, 0.05, 0.5))),
        skew_most_ms=skew_most_ms,
    )


def _draw_aim(random: Random, operations: Sequence[str]) -> Aim:
    return Aim(
        random.choice(operations),
        random.choice(AIMED),
        chance=random.choice((0.05, 0.2, 0.5)),
        hits_most=random.choice((1, 3, 8)),
    )
