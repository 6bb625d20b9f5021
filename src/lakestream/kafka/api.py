"""What a handler is, and what it is given."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lakestream.kafka import codec
from lakestream.kafka.codec import Fields
from lakestream.kafka.groups import GroupCoordinator
from lakestream.kafka.settings import KafkaSettings
from lakestream.stream import Streams

LEADER_EPOCH: Final = 0
"""Brokers own nothing, so no leader ever changes: the epoch is 0 for the life of a topic's UUID."""

Reply = Fields | None
"""The fields of the response; None: this request gets none."""
Handler = Callable[["Context", Any], Awaitable[Reply | Awaitable[Reply]]]
"""Of an ordered API, the handler itself runs in arrival order on its connection and the awaitable that it may
return runs beside later requests. Of the others, all of it runs beside later requests."""


@dataclass(frozen=True, slots=True)
class Api:
    """One registered API. `cancellable`: it only waits and reads, so a lost connection ends it."""

    key: int
    handle: Handler
    min_version: int
    max_version: int
    ordered: bool
    cancellable: bool

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version


def api(key: int, handle: Handler, *, ordered: bool = False, cancellable: bool = False) -> Api:
    """The registration line of a handler file: the API in every version that kio has."""
    lowest, highest = codec.versions(key)
    return Api(key, handle, lowest, highest, ordered, cancellable)


@dataclass(frozen=True, slots=True)
class Door:
    """What all connections of a server share."""

    streams: Streams
    groups: GroupCoordinator
    settings: KafkaSettings
    apis: Mapping[int, Api]


@dataclass(slots=True)
class Context:
    """One request's surroundings."""

    door: Door
    version: int
    client_id: str
    client_host: str
    close: Callable[[str], None]
    """Closes the connection after an error that has no response; the reason is logged."""
    holds: list["asyncio.Future[Any]"] = field(default_factory=list)
    """Futures that keep the request's memory in use, even after its answer."""

    @property
    def streams(self) -> Streams:
        return self.door.streams

    @property
    def groups(self) -> GroupCoordinator:
        return self.door.groups

    @property
    def settings(self) -> KafkaSettings:
        return self.door.settings
