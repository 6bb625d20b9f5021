"""What a caller may do with tables, views and namespaces: they have no rights of their own.

The table of a topic has the topic's rights, also before it is made. Any other table, a view or a namespace has those of
a topic of its dotted name: a grant on the prefix `sales.` is one on the namespace's tables. A refusal says the same
whether the thing is there or not.
"""

from collections.abc import Sequence
from uuid import UUID

from lakestream.access import CLUSTER_NAME, Authorizer, Operation, Principal, ResourceKind, denied
from lakestream.errors import CorruptObject
from lakestream.metadata.names.pointers import Namespace, Pointers, TableName
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.metadata.topics.tables import DEFAULT_NAMESPACE, table_name

_Resource = tuple[ResourceKind, str]


class TableRights:
    def __init__(self, pointers: Pointers, topics: Topics, authorizer: Authorizer) -> None:
        self._pointers = pointers
        self._topics = topics
        self._authorizer = authorizer

    async def check(self, principal: Principal, operation: Operation, *names: TableName) -> None:
        """For all of these tables or views. Raises `NotAuthorized`."""
        for name, resource in zip(names, await self._resources(names), strict=True):
            if not self._authorizer.allows(principal, operation, *resource):
                raise denied(principal, operation, ResourceKind.TOPIC, str(name))

    def check_topic(self, principal: Principal, operation: Operation, topic: str) -> None:
        """Raises `NotAuthorized`."""
        if not self.allows_topic(principal, operation, topic):
            raise denied(principal, operation, ResourceKind.TOPIC, topic)

    def check_new_topic(self, principal: Principal, topic: str) -> None:
        """As in Kafka: any topic, or topics of this name. Raises `NotAuthorized`."""
        cluster = self._authorizer.allows(principal, Operation.CREATE, ResourceKind.CLUSTER, CLUSTER_NAME)
        if not cluster and not self.allows_topic(principal, Operation.CREATE, topic):
            raise denied(principal, Operation.CREATE, ResourceKind.TOPIC, topic)

    async def visible(self, principal: Principal, namespace: Namespace, names: Sequence[str]) -> list[str]:
        """Those tables or views in the namespace that the caller may describe."""
        resources = await self._resources([TableName(namespace, name) for name in names])
        allows = self._authorizer.allows
        return [
            name
            for name, resource in zip(names, resources, strict=True)
            if allows(principal, Operation.DESCRIBE, *resource)
        ]

    def check_namespace(self, principal: Principal, operation: Operation, namespace: Namespace) -> None:
        """Raises `NotAuthorized`."""
        if not self.allows_namespace(principal, operation, namespace):
            raise denied(principal, operation, ResourceKind.TOPIC, ".".join(namespace))

    def allows_namespace(self, principal: Principal, operation: Operation, namespace: Namespace) -> bool:
        """Whoever may describe a topic may describe the namespace where topics' tables are."""
        if operation is Operation.DESCRIBE and namespace == DEFAULT_NAMESPACE:
            return self._authorizer.allows_any(principal, operation, ResourceKind.TOPIC)
        return self.allows_topic(principal, operation, ".".join(namespace))

    def allows_topic(self, principal: Principal, operation: Operation, name: str) -> bool:
        return self._authorizer.allows(principal, operation, ResourceKind.TOPIC, name)

    async def _resources(self, names: Sequence[TableName]) -> list[_Resource]:
        table_ids = await self._pointers.resolve_all(names)
        # A derived table has the rights of the topic whose rows it has.
        derived = await self._pointers.derived.topics_of([*table_ids.values()])
        table_ids = {
            name: derived[table_id].topic_id if table_id in derived else table_id
            for name, table_id in table_ids.items()
        }
        owners = await self._topics.find_ids(table_ids.values()) if table_ids else {}
        awaited = {} if len(table_ids) == len(set(names)) else await self._awaited()
        return [_resource(name, table_ids.get(name), owners, awaited) for name in names]

    async def _awaited(self) -> dict[TableName, Topic]:
        """The tables that topics ask for: they may not be made yet."""
        return {table_name(topic.name, topic.options.table_name): topic for topic in await self._topics.list()}


def _resource(
    name: TableName,
    table_id: UUID | None,
    owners: dict[UUID, Topic | CorruptObject],
    awaited: dict[TableName, Topic],
) -> _Resource:
    owner = awaited.get(name) if table_id is None else owners.get(table_id)
    if owner is None:
        return ResourceKind.TOPIC, str(name)
    if isinstance(owner, CorruptObject):
        # Whose table it is cannot be told: only who may do it everywhere may do it here.
        return ResourceKind.CLUSTER, CLUSTER_NAME
    return ResourceKind.TOPIC, owner.name
