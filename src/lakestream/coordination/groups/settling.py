"""What a change of a group leads to: the next generation begins, what has changed is stored, answers that waited for
that are given, and the clock is set for whatever is next."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from lakestream.coordination.groups.consumer.group import ConsumerGroup
from lakestream.coordination.groups.converting import downgraded, is_to_go_back
from lakestream.coordination.groups.keeping import stored
from lakestream.coordination.groups.leases import GroupLeases, Held, WaitingAnswer
from lakestream.coordination.settings import GroupSettings
from lakestream.errors import LakestreamError, NotCoordinator
from lakestream.metadata.store import Store
from lakestream.runtime import Clock

log = logging.getLogger(__name__)

_SAVE_AGAIN_S: Final = 0.5
_TIMER_SLACK_S: Final = 0.001
"""Late rather than early: a timer that fires a rounding error before its deadline would find nothing to do, again and
again."""

T = TypeVar("T")


class Settler:
    """Over the groups that this broker holds. Whoever changes a group's machine holds the group's lock, and settles it
    before the lock is given back."""

    def __init__(self, store: Store, holder: str, settings: GroupSettings, clock: Clock) -> None:
        self.leases = GroupLeases(store, holder, settings, self._taken)
        self.rebalances = 0
        self._clock = clock
        self._ticks: set[asyncio.Task[None]] = set()

    async def settle(self, held: Held) -> None:
        machine, begun = held.machine, False
        if isinstance(machine, ConsumerGroup) and is_to_go_back(machine):
            log.info("group %s goes back to the classic protocol", held.name)
            machine = held.machine = downgraded(machine, machine.subscribing.seen, now_ms())
        while machine.ready(now_ms()):
            machine.begin_generation(now_ms())
            begun = True
        is_stored_now = not machine.unsaved or await self.save(held)
        if is_stored_now:
            held.give_answers()
        if begun:
            self.rebalances += 1
            log.info(
                "group %s: generation %d with %d members, %s",
                held.name,
                machine.generation,
                len(machine.members),
                machine.state.value,
            )
        self._arm(held, machine.next_deadline_ms() / 1000 if is_stored_now else now_ms() / 1000 + _SAVE_AGAIN_S)

    async def save(self, held: Held) -> bool:
        """Before anybody hears of it. False: it is not known whether the store has it."""
        since_ms = held.unsaved_since_ms = held.unsaved_since_ms or now_ms()
        await held.commits.drained()
        kept = stored(held.machine, held.state, self._clock.now_ms())
        try:
            await held.rows.save(*kept)
        except NotCoordinator:
            self.leases.drop(held)
            raise
        except LakestreamError as error:
            log.warning("group %s waits for the store: %s", held.name, error)
            return False
        held.state, held.machine.unsaved, held.unsaved_since_ms = kept.state, False, None
        held.machine.postpone(now_ms() - since_ms)
        return True

    def _arm(self, held: Held, due_s: float) -> None:
        """Heartbeats only push deadlines back, so a timer that is set earlier finds nothing to do and is set anew."""
        if held.timer is not None:
            if held.timer.when() <= due_s and not held.timer.cancelled():
                return
            held.timer.cancel()
        held.timer = None
        if due_s != float("inf") and not held.dropped:
            held.timer = asyncio.get_running_loop().call_at(due_s + _TIMER_SLACK_S, self._tick, held)

    def _taken(self, held: Held) -> None:
        """The sessions of the members that were found begin now."""
        self._arm(held, held.machine.next_deadline_ms() / 1000)

    def _tick(self, held: Held) -> None:
        held.timer = None
        task = asyncio.get_running_loop().create_task(self._expire(held))
        self._ticks.add(task)
        task.add_done_callback(self._ticks.discard)

    async def _expire(self, held: Held) -> None:
        async with held.lock:
            if held.dropped:
                return
            # While its members wait for the store, nobody is late.
            for member_id in () if held.machine.unsaved else held.machine.expire(now_ms()):
                log.info("group %s: member %s was not heard of in time", held.name, member_id)
            with suppress(NotCoordinator):
                await self.settle(held)


def now_ms() -> float:
    """By the loop's clock, which knows no leaps."""
    return asyncio.get_running_loop().time() * 1000


def check(held: Held) -> None:
    """Whether the group is still in this broker's hands."""
    if held.dropped:
        raise NotCoordinator(f"group {held.name} is coordinated elsewhere")


def answering(held: Held, answer: "asyncio.Future[T]", refused: Callable[[T], T]) -> Callable[[T], None]:
    """Takes the machine's answer and keeps it back until what it says is stored."""

    def keep(value: T) -> None:
        held.answers.append(WaitingAnswer(lambda: _tell(answer, value), lambda: _tell(answer, refused(value))))

    return keep


def _tell(answer: "asyncio.Future[T]", value: T) -> None:
    if not answer.done():
        answer.set_result(value)
