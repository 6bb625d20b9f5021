"""May this principal do that? The port, in Kafka's words, and the answer as long as nobody is asked who they are.

A table, a view or a namespace is no resource of its own: its rights are those of a topic (`catalog.engines.rights`).
"""

from enum import Enum
from typing import Final, Protocol

from lakestream.access.principal import Principal
from lakestream.errors import NotAuthorized


class Operation(Enum):
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    ALTER_CONFIGS = "alter_configs"
    DESCRIBE_CONFIGS = "describe_configs"
    CLUSTER_ACTION = "cluster_action"


class ResourceKind(Enum):
    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional id"
    SUBJECT = "subject"
    """Of the schema registry. Kafka has no such kind."""


CLUSTER_NAME: Final = "kafka-cluster"
"""The one resource of its kind, as Kafka names it."""


_OPERATIONS: Final = {
    ResourceKind.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.ALTER_CONFIGS,
        Operation.DESCRIBE_CONFIGS,
    ),
    ResourceKind.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.ALTER_CONFIGS,
        Operation.DESCRIBE_CONFIGS,
    ),
    ResourceKind.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.ALTER_CONFIGS,
        Operation.DESCRIBE_CONFIGS,
    ),
}
"""As in Kafka: what can be done with which things."""


class Authorizer(Protocol):
    """Answers from memory, without waiting: it is asked once for each partition of a produce or a fetch. Who may read,
    write, delete or alter a thing may describe it."""

    def allows(self, principal: Principal, operation: Operation, kind: ResourceKind, name: str) -> bool: ...

    def allows_any(self, principal: Principal, operation: Operation, kind: ResourceKind) -> bool:
        """Whether there may be a resource of that kind for which it is allowed."""
        ...


class AllowAll:
    def allows(self, principal: Principal, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return True

    def allows_any(self, principal: Principal, operation: Operation, kind: ResourceKind) -> bool:
        return True


ALLOW_ALL: Final = AllowAll()


def check(
    authorizer: Authorizer, principal: Principal, operation: Operation, kind: ResourceKind, name: str = CLUSTER_NAME
) -> None:
    """Raises `NotAuthorized`."""
    if not authorizer.allows(principal, operation, kind, name):
        raise denied(principal, operation, kind, name)


def allowed(
    authorizer: Authorizer, principal: Principal, kind: ResourceKind, name: str = CLUSTER_NAME
) -> list[Operation]:
    """What of all that can be done with such a thing at all."""
    return [each for each in _OPERATIONS[kind] if authorizer.allows(principal, each, kind, name)]


def denied(principal: Principal, operation: Operation, kind: ResourceKind, name: str = CLUSTER_NAME) -> NotAuthorized:
    """Says the same whether the thing is there or not."""
    return NotAuthorized(f"{principal} may not {operation.value} {kind.value} {name}", kind.value)
