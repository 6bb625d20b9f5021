"""Answers as flat rows of paths and values, without what cannot be the same, and the differences that are meant."""

import dataclasses
import datetime as dt
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple
from uuid import UUID

from support.differential.drawing import Ask

_IGNORED: Final = frozenset({"throttle_time", "error_message", "topic_id", "cluster_id", "host", "port", "log_dir"})
"""Whose values are a machine's, or words."""
_BROKERS: Final = ("broker_id", "node_id", "leader_id", "controller_id", "replica_nodes", "isr_nodes", "resource_name")
"""Fields that number brokers."""
_NAMED_BY: Final = ("name", "topic", "topic_name", "group_id", "resource_name", "entity_type", "user", "key")
_NUMBERED_BY: Final = ("partition_index", "partition_id", "broker_id", "node_id")


class Difference(NamedTuple):
    path: str
    ours: Any
    theirs: Any


class Allowed(NamedTuple):
    """`key`: of the API; None: any. `path`: how the path ends. `ours` and `theirs`: None is any value."""

    key: int | None
    path: str
    ours: Any
    theirs: Any
    reason: str

    def covers(self, ask: Ask, found: Difference) -> bool:
        if self.key is not None and self.key != ask.key:
            return False
        if not found.path.endswith(self.path) and f"{self.path}[" not in found.path:
            return False
        return self.ours in (None, found.ours) and self.theirs in (None, found.theirs)


MISSING: Final = "missing"

ALLOWED: Final = (
    Allowed(19, "configs", None, None, "settings of our own are among a topic's, and retention.ms is without limit"),
    Allowed(
        32, ".value", "-1", "604800000", "retention.ms is without limit where nobody set it: the table is the topic"
    ),
    Allowed(32, ".config_source", 5, 3, "a cluster-wide default of min.insync.replicas: there are no replicas here"),
    Allowed(35, "total_bytes", -1, None, "a bucket has no size"),
    Allowed(35, "usable_bytes", -1, None, "a bucket has no size"),
    Allowed(44, ".error_code", "invalid_request", "unknown_server_error", "an operation that there is not is said so"),
    Allowed(55, "nodes", None, None, "brokers are told as the nodes of a quorum that there is not"),
    Allowed(55, ".leader_id", 1, 0, "nobody leads what there is not; our broker has the number 0"),
    Allowed(3, "eligible_leader_replicas", None, None, "there are no replicas to be eligible"),
    Allowed(37, ".error_code", "invalid_partitions", "unknown_server_error", "more partitions than can be are said so"),
)


def rows(value: Any, broker_id: int, path: str = "") -> Iterator[tuple[str, Any]]:
    """Elements of lists go by what names them; our broker is Kafka's number 1."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.name not in _IGNORED:
                yield from rows(getattr(value, field.name), broker_id, f"{path}.{field.name}")
    elif isinstance(value, tuple):
        for index, each in enumerate(value):
            yield from rows(each, broker_id, f"{path}[{_label(each, broker_id, index)}]")
    else:
        yield path, _plain(value, broker_id, path.rpartition(".")[2].partition("[")[0])


def _label(value: Any, broker_id: int, index: int) -> str:
    if hasattr(value, "resource_type"):
        return f"{value.resource_type} {_plain(value.resource_name, broker_id, 'resource_name')}"
    for names in (_NAMED_BY, _NUMBERED_BY):
        for name in names:
            if hasattr(value, name):
                return str(_plain(getattr(value, name), broker_id, name))
    return str(index)


def _plain(value: Any, broker_id: int, field: str) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, UUID | dt.datetime | dt.timedelta):
        return type(value).__name__
    if field in _BROKERS and value in (broker_id, str(broker_id)):
        return type(value)(1)
    return value


def differences(ours: Any, theirs: Any, broker_id: int) -> list[Difference]:
    mine: Mapping[str, Any] = dict(rows(ours, broker_id))
    other: Mapping[str, Any] = dict(rows(theirs, 1))
    return [
        Difference(path, mine.get(path, MISSING), other.get(path, MISSING))
        for path in sorted(mine.keys() | other.keys())
        if mine.get(path, MISSING) != other.get(path, MISSING)
    ]


def not_allowed(ask: Ask, found: list[Difference]) -> list[Difference]:
    return [each for each in found if not any(allowed.covers(ask, each) for allowed in ALLOWED)]
