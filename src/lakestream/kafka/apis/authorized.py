"""What a caller may do with a thing, as answers tell it: one bit for each of Kafka's operations."""

from collections.abc import Iterable
from typing import Final

from lakestream.access import Operation
from lakestream.kafka.apis.api import Context

_BITS: Final = {
    Operation.READ: 3,
    Operation.WRITE: 4,
    Operation.CREATE: 5,
    Operation.DELETE: 6,
    Operation.ALTER: 7,
    Operation.DESCRIBE: 8,
    Operation.CLUSTER_ACTION: 9,
    Operation.DESCRIBE_CONFIGS: 10,
    Operation.ALTER_CONFIGS: 11,
}
_IDEMPOTENT_WRITE: Final = 12


def topic_operations(context: Context, name: str) -> int:
    return _bits(context.streams.topics.allowed(context.principal, name))


def group_operations(context: Context, name: str) -> int:
    return _bits(context.groups.allowed(context.principal, name))


def cluster_operations(context: Context) -> int:
    cluster = context.streams.cluster
    writes = 1 << _IDEMPOTENT_WRITE if cluster.may_write(context.principal) else 0
    return _bits(cluster.allowed(context.principal)) | writes


def _bits(operations: Iterable[Operation]) -> int:
    return sum(1 << _BITS[operation] for operation in operations)
