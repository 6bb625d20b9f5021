"""Authorizers that say no."""

from collections.abc import Collection

from lakestream.access import Operation, Principal, ResourceKind


class DenyAll:
    def allows(self, principal: Principal, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return False

    def allows_any(self, principal: Principal, operation: Operation, kind: ResourceKind) -> bool:
        return False


class OnlyTopics:
    """Everything with these topics and with all groups, nothing with the cluster as such."""

    def __init__(self, *names: str) -> None:
        self._names: Collection[str] = names

    def allows(self, principal: Principal, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return kind is ResourceKind.GROUP or (kind is ResourceKind.TOPIC and name in self._names)

    def allows_any(self, principal: Principal, operation: Operation, kind: ResourceKind) -> bool:
        return kind in (ResourceKind.TOPIC, ResourceKind.GROUP)
