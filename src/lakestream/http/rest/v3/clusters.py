"""`/v3/clusters`: the one cluster that there is, its brokers, and ACLs, of which there are none."""

from typing import Final, NoReturn

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lakestream.access import Operation
from lakestream.http.identity import principal_of
from lakestream.http.rest.answers import Link, Links, ListMetadata, ResourceList, RestResource, answer
from lakestream.http.rest.endpoints import Endpoint
from lakestream.http.rest.errors import BAD_REQUEST, RestError
from lakestream.http.rest.requests import path_number
from lakestream.metadata.brokers import Broker
from lakestream.stream import Streams

CLUSTER: Final = "/v3/clusters/{cluster_id}"
_TAG: Final = "Clusters and brokers"
_NO_ACLS: Final = "Security is disabled: clients are not asked who they are, so there are no ACLs"


class ClusterData(RestResource, frozen=True, kw_only=True):
    cluster_id: str
    controller: Link | None
    acls: Link
    brokers: Link
    broker_configs: Link
    consumer_groups: Link
    topics: Link
    partition_reassignments: Link


class BrokerData(RestResource, frozen=True, kw_only=True):
    cluster_id: str
    broker_id: int
    host: str
    port: int
    rack: str | None
    configs: Link
    partition_replicas: Link


class ConfigOfBroker(RestResource, frozen=True, kw_only=True):
    cluster_id: str
    name: str
    value: str | None


class Acl(msgspec.Struct, frozen=True, kw_only=True):
    resource_type: str | None = None
    resource_name: str | None = None
    pattern_type: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: str | None = None
    permission: str | None = None


def links_of(request: Request, streams: Streams) -> Links:
    """Raises `RestError` for a cluster that is not this one."""
    asked = request.path_params["cluster_id"]
    if asked != streams.cluster_id:
        raise RestError(404, f"Cluster {asked[:100]} cannot be found.")
    return Links(request, asked)


class ClusterRoutes:
    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def endpoints(self) -> list[Endpoint]:
        broker, configs = f"{CLUSTER}/brokers/{{broker_id}}", ResourceList[ConfigOfBroker]
        return [
            Endpoint("GET", "/v3/clusters", self.rest_clusters, "The cluster", _TAG, None, ResourceList[ClusterData]),
            Endpoint("GET", CLUSTER, self.rest_cluster, "The cluster", _TAG, None, ClusterData),
            Endpoint(
                "GET", f"{CLUSTER}/brokers", self.rest_brokers, "Brokers alive", _TAG, None, ResourceList[BrokerData]
            ),
            Endpoint("GET", broker, self.rest_broker, "A broker", _TAG, None, BrokerData),
            Endpoint("GET", f"{broker}/configs", self.rest_broker_configs, "None is changed here", _TAG, None, configs),
            Endpoint(
                "GET", f"{CLUSTER}/broker-configs", self.rest_cluster_configs, "There are none", _TAG, None, configs
            ),
            Endpoint("GET", f"{CLUSTER}/acls", self.rest_acls, "Refused: there are no ACLs", _TAG),
            Endpoint("POST", f"{CLUSTER}/acls", self.rest_create_acl, "Refused: there are no ACLs", _TAG, Acl),
            Endpoint("DELETE", f"{CLUSTER}/acls", self.rest_delete_acls, "Refused: there are no ACLs", _TAG),
            Endpoint(
                "POST", f"{CLUSTER}/acls:batch", self.rest_create_acls, "Refused: no ACLs", _TAG, dict[str, list[Acl]]
            ),
        ]

    async def rest_clusters(self, request: Request) -> Response:
        links = Links(request, self._streams.cluster_id)
        data = [await self._cluster(request, links)]
        listed = ResourceList(kind="KafkaClusterList", metadata=ListMetadata(links.root), data=data)
        return answer(listed)

    async def rest_cluster(self, request: Request) -> Response:
        return answer(await self._cluster(request, links_of(request, self._streams)))

    async def rest_brokers(self, request: Request) -> Response:
        links = links_of(request, self._streams)
        brokers = await self._streams.describe_cluster(principal_of(request))
        return answer(links.listed("KafkaBrokerList", [_broker(links, each) for each in brokers], "brokers"))

    async def rest_broker(self, request: Request) -> Response:
        links, broker = await self._known(request)
        return answer(_broker(links, broker))

    async def rest_broker_configs(self, request: Request) -> Response:
        """Those of a broker are in its settings file; the Kafka door shows them."""
        links, broker = await self._known(request)
        found: list[ConfigOfBroker] = []
        return answer(links.listed("KafkaBrokerConfigList", found, "brokers", broker.broker_id, "configs"))

    async def rest_cluster_configs(self, request: Request) -> Response:
        links = links_of(request, self._streams)
        self._streams.cluster.check(principal_of(request), Operation.DESCRIBE_CONFIGS)
        found: list[ConfigOfBroker] = []
        return answer(links.listed("KafkaClusterConfigList", found, "broker-configs"))

    async def rest_acls(self, request: Request) -> Response:
        self._refuse_acls(request, Operation.DESCRIBE)

    async def rest_create_acl(self, request: Request) -> Response:
        self._refuse_acls(request, Operation.ALTER)

    async def rest_create_acls(self, request: Request) -> Response:
        self._refuse_acls(request, Operation.ALTER)

    async def rest_delete_acls(self, request: Request) -> Response:
        self._refuse_acls(request, Operation.ALTER)

    def _refuse_acls(self, request: Request, operation: Operation) -> NoReturn:
        links_of(request, self._streams)
        self._streams.cluster.check(principal_of(request), operation)
        raise RestError(BAD_REQUEST, _NO_ACLS)

    async def _known(self, request: Request) -> tuple[Links, Broker]:
        links = links_of(request, self._streams)
        brokers = await self._streams.describe_cluster(principal_of(request))
        broker_id = path_number(request, "broker_id")
        for broker in brokers:
            if broker.broker_id == broker_id:
                return links, broker
        raise RestError(404, f"Broker {broker_id} cannot be found.")

    async def _cluster(self, request: Request, links: Links) -> ClusterData:
        brokers = await self._streams.describe_cluster(principal_of(request))
        return ClusterData(
            kind="KafkaCluster",
            metadata=links.metadata(),
            cluster_id=links.cluster_id,
            controller=links.to("brokers", brokers[0].broker_id) if brokers else None,
            acls=links.to("acls"),
            brokers=links.to("brokers"),
            broker_configs=links.to("broker-configs"),
            consumer_groups=links.to("consumer-groups"),
            topics=links.to("topics"),
            partition_reassignments=links.to("topics", "-", "partitions", "-", "reassignment"),
        )


def _broker(links: Links, broker: Broker) -> BrokerData:
    return BrokerData(
        kind="KafkaBroker",
        metadata=links.metadata("brokers", broker.broker_id),
        cluster_id=links.cluster_id,
        broker_id=broker.broker_id,
        host=broker.host,
        port=broker.port,
        rack=broker.zone,
        configs=links.to("brokers", broker.broker_id, "configs"),
        partition_replicas=links.to("brokers", broker.broker_id, "partition-replicas"),
    )
