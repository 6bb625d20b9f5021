"""What a handler is, and what it is given."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from lakestream.access import Principal
from lakestream.coordination.groups import Groups
from lakestream.coordination.shares import ShareGroups
from lakestream.coordination.transactions import Transactions
from lakestream.kafka.answering import Answers, Slot
from lakestream.kafka.receiving import Pools
from lakestream.kafka.settings import KafkaSettings
from lakestream.kafka.wire.describing import Descriptions
from lakestream.kafka.wire.writing import Fields
from lakestream.metrics import KafkaMetrics
from lakestream.stream import MemoryBudget, Streams

Reply = Fields | None
"""The fields of the response; None: this request gets none."""
Handler = Callable[["Context", Any], Coroutine[Any, Any, Reply]]
"""Runs beside the connection's other requests; only the answers are put in order."""
Taken = Union[Reply, "asyncio.Future[Reply]"]
Admission = Callable[["Context", Any], Taken | Coroutine[Any, Any, Taken]]
"""Takes a request in, in arrival order. It returns the reply or a future of it. If it cannot take the request in at
once, it returns a coroutine of either, and no later request of the connection is taken in before that is done."""


@dataclass(frozen=True, slots=True)
class Api:
    """One registered API. `cancellable`: it only waits and reads, so a lost connection ends it. `announced_from`: the
    lowest version in the answer to ApiVersions, which may be lower than the lowest that is served."""

    key: int
    min_version: int
    max_version: int
    announced_from: int
    handle: Handler | None = None
    admit: Admission | None = None
    cancellable: bool = False
    name: str = ""
    """As its file has it: produce, fetch …"""

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version


def api(key: int, handle: Handler, *, versions: tuple[int, int], cancellable: bool = False) -> Api:
    """The registration line of a handler file. `versions`: the lowest and the highest that it serves."""
    lowest, highest = versions
    return Api(key, lowest, highest, lowest, handle=handle, cancellable=cancellable, name=_name(handle))


def ordered_api(key: int, admit: Admission, *, versions: tuple[int, int], announced_from: int) -> Api:
    """The same, for an API whose requests take effect in the order in which a connection brings them."""
    return Api(key, *versions, announced_from, admit=admit, name=_name(admit))


def _name(handler: Handler | Admission) -> str:
    return handler.__module__.rpartition(".")[2].partition("_")[2]


@dataclass(slots=True)
class Door:
    """What all connections of a server share."""

    streams: Streams
    groups: Groups
    transactions: Transactions
    shares: ShareGroups
    settings: KafkaSettings
    apis: Mapping[int, Api]
    descriptions: Descriptions
    pools: Pools
    """For requests that are still arriving."""
    control_budget: MemoryBudget
    """For requests that are whole and bring no records: heartbeats, commits, fetches. They never wait for producers."""
    answer_budget: MemoryBudget
    """For answers until clients have read them. Fetches wait for it, and nothing else does."""
    metrics: KafkaMetrics
    is_withdrawn: bool = False
    """The broker is being stopped: whoever brings or wants records is sent to another."""


@dataclass(slots=True)
class Context:
    """One request's surroundings."""

    door: Door
    principal: Principal
    """Who asks."""
    version: int
    client_id: str
    client_host: str
    answers: Answers
    """Those of the connection."""
    close: Callable[[str], None]
    """Closes the connection after an error that has no response; the reason is logged."""
    holds: list["asyncio.Future[Any]"] = field(default_factory=list)
    """Futures that keep the request's memory in use, even after its answer."""
    slot: Slot | None = None
    """Where its answer goes."""

    def throttle(self, throttle_ms: int) -> None:
        """The client is beyond its quota: it is told so, and not listened to for that time."""
        if self.slot is not None:
            self.slot.throttle_ms = max(self.slot.throttle_ms, throttle_ms)

    @property
    def streams(self) -> Streams:
        return self.door.streams

    @property
    def groups(self) -> Groups:
        return self.door.groups

    @property
    def transactions(self) -> Transactions:
        return self.door.transactions

    @property
    def shares(self) -> ShareGroups:
        return self.door.shares

    @property
    def settings(self) -> KafkaSettings:
        return self.door.settings
