"""What a caller may do with a thing, as answers tell it: one bit for each of Kafka's operations, or why not."""

from collections.abc import Iterable
from typing import Final

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.errors import NotAuthorized
from lakestream.kafka.apis.api import Context
from lakestream.kafka.errors import code_of

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


def denied_or(
    context: Context, operation: Operation, code: ErrorCode, message: str | None
) -> tuple[ErrorCode, str | None]:
    """Why the caller may not do it with the cluster; the code and message given, if it may."""
    try:
        context.streams.cluster.check(context.principal, operation)
    except NotAuthorized as error:
        return code_of(error), str(error)
    return code, message


def _bits(operations: Iterable[Operation]) -> int:
    return sum(1 << _BITS[operation] for operation in operations)
