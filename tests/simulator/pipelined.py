"""An idempotent producer's way to one partition: several batches in flight, as Kafka's clients have them.

The partition is known by its number: a topic that is created again meets the producer's old id and sequences.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakestream.errors import (
    DuplicateSequence,
    PredecessorAwaited,
    ProducerFenced,
    RetryableError,
    SequenceGap,
    UnknownProducer,
    UnknownStream,
)
from lakestream.metadata.log.commit import SEQUENCE_SPAN
from lakestream.model import StreamPartition
from lakestream.stream.engine import StreamEngine
from simulator.actors import BrokerActor
from simulator.batches import batch

if TYPE_CHECKING:
    from simulator.history import History

IN_FLIGHT: Final = 5


@dataclass(slots=True)
class Sent:
    """A batch in flight: neither acknowledged nor given up."""

    partition: StreamPartition
    number: int
    values: Sequence[bytes]
    epoch: int
    sequence: int


class Pipeline:
    """Batches keep their sequence from attempt to attempt. One that meets a closed epoch with everything before it
    acknowledged or given up is renumbered with all behind it, in a new epoch; what is still under way of the old one
    must not land any more. One that is given up leaves a gap: when nothing is in flight any more, the epoch is over."""

    def __init__(self, history: "History", name: str) -> None:
        self._history = history
        self._name = name
        self._producer: tuple[int, int] | None = None
        self._next_sequence = history.scene.first_sequence
        self._flying: list[Sent] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._has_gap = False
        self._begun: tuple[int, StreamPartition] | None = None
        """The present epoch, and the partition in which it began: not that of a topic that was created since."""
        self._broker: BrokerActor = history.broker()

    async def send(self, partition: StreamPartition, number: int, values: Sequence[bytes]) -> None:
        """Returns once the batch is on its way."""
        producer = await self._identity()
        while len(self._flying) >= IN_FLIGHT or (self._has_gap and self._flying):
            self._room.clear()
            await self._room.wait()
        if self._has_gap:
            self._bump()
        sent = Sent(partition, number, values, producer[1], 0)
        self._number(sent)
        self._flying.append(sent)
        scene = self._history.scene
        self._history.auditor.sending(
            partition, values, scene.sends_most if scene.forgetful else 1, ordered=not scene.forgetful
        )
        task = asyncio.create_task(self._deliver(sent))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        await asyncio.gather(*self._tasks)

    async def _deliver(self, sent: Sent) -> None:
        history = self._history
        try:
            for _ in range(history.scene.sends_most):
                if sent.partition not in history.partitions():
                    break
                if await self._attempt(sent):
                    return
            # Whether the batch is in the log, or will be, is not known.
            self._has_gap = True
        finally:
            self._flying.remove(sent)
            self._room.set()

    async def _attempt(self, sent: Sent) -> bool:
        """Whether the batch is settled."""
        history, auditor = self._history, self._history.auditor
        assert self._producer is not None
        epoch, was_first = sent.epoch, self._flying[0] is sent
        data = batch(sent.values, producer=(self._producer[0], epoch, sent.sequence))
        if history.world.random.random() < 0.1:
            self._broker = history.broker()
        try:
            base = await self._broker.call(lambda streams: append(self._history, streams, sent.partition, data))
        except PredecessorAwaited as error:
            if was_first and epoch == sent.epoch and self._is_whole(sent):
                auditor.fail(f"I8: all that {self._name} sent before is acknowledged, and it was told: {error}")
            await asyncio.sleep(history.world.random.uniform(0.0, 0.1))
            return False
        except RetryableError:
            self._broker = history.broker()
            await asyncio.sleep(history.world.random.uniform(0.0, 0.1))
            return False
        except DuplicateSequence:
            auditor.acknowledged_somewhere(sent.partition, sent.values)
            return True
        except (SequenceGap, UnknownProducer):
            # Of what lies before it in flight the outcome is not known: that has to be settled first.
            if epoch == sent.epoch and self._flying[0] is sent:
                self._bump()
            await asyncio.sleep(history.world.random.uniform(0.0, 0.1))
            return False
        except ProducerFenced as error:
            if epoch == sent.epoch:
                auditor.fail(f"I8: {self._name} is the only one with its epoch and was told: {error}")
            return False
        except UnknownStream:
            return False
        auditor.acknowledged(sent.partition, base, sent.values)
        return True

    def _is_whole(self, sent: Sent) -> bool:
        """Whether everything before it in its epoch was acknowledged, once it is the first in flight."""
        return not self._has_gap and self._begun == (sent.epoch, sent.partition) and not self._history.scene.forgetful

    def _bump(self) -> None:
        assert self._producer is not None
        self._producer = (self._producer[0], self._producer[1] + 1)
        self._next_sequence = self._history.scene.first_sequence
        self._has_gap = False
        for sent in self._flying:
            self._number(sent)
            self._history.auditor.renumbering(sent.values)

    def _number(self, sent: Sent) -> None:
        assert self._producer is not None
        sent.epoch, sent.sequence = self._producer[1], self._next_sequence
        if self._begun is None or self._begun[0] != sent.epoch:
            self._begun = (sent.epoch, sent.partition)
        self._next_sequence = (self._next_sequence + len(sent.values)) % SEQUENCE_SPAN

    async def _identity(self) -> tuple[int, int]:
        while self._producer is None:
            try:
                self._producer = await self._history.broker().call(lambda streams: streams.new_producer())
            except RetryableError:
                continue
        return self._producer


async def append(history: "History", streams: StreamEngine, partition: StreamPartition, data: bytes) -> int:
    disk = history.disks is not None and history.disks.wants.get(streams.broker_id, True)
    return (await streams.append(partition, data, disk=disk)).base_offset
