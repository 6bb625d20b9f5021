"""`/v3/clusters/…/partitions`: partitions, their offsets, and the brokers that clients are sent to for them.

Any broker serves any partition: the one named here is the hint that Kafka's clients get, too.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from lakestream.errors import LakestreamError, UnknownStream
from lakestream.http.identity import principal_of
from lakestream.http.rest.answers import Link, Links, ResourceList, RestResource, answer
from lakestream.http.rest.endpoints import Endpoint
from lakestream.http.rest.errors import RestError
from lakestream.http.rest.requests import path_number
from lakestream.http.rest.v3.clusters import CLUSTER, links_of
from lakestream.http.rest.v3.topics import TOPIC, TOPICS, known_topic
from lakestream.metadata.brokers import Broker, rendezvous
from lakestream.metadata.topics.list import Topic
from lakestream.stream import EARLIEST, LATEST, OffsetQuery, Streams

_TAG: Final = "Partitions"
PARTITION: Final = f"{TOPIC}/partitions/{{partition_id}}"


class PartitionData(RestResource, frozen=True, kw_only=True):
    cluster_id: str
    topic_name: str
    partition_id: int
    leader: Link | None
    replicas: Link
    reassignment: Link


class OffsetData(RestResource, frozen=True, kw_only=True):
    cluster_id: str
    topic_name: str
    partition_id: int
    earliest_offset: int
    latest_offset: int


class ReplicaData(RestResource, frozen=True, kw_only=True):
    cluster_id: str
    topic_name: str
    partition_id: int
    broker_id: int
    is_leader: bool
    is_in_sync: bool
    broker: Link


class Reassignment(RestResource, frozen=True, kw_only=True):
    cluster_id: str
    topic_name: str
    partition_id: int


class PartitionRoutes:
    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def endpoints(self) -> list[Endpoint]:
        replicas, reassigned = ResourceList[ReplicaData], ResourceList[Reassignment]
        moves = "None is under way: brokers own no partitions"
        return [
            Endpoint(
                "GET",
                f"{TOPIC}/partitions",
                self.rest_partitions,
                "Partitions",
                _TAG,
                None,
                ResourceList[PartitionData],
            ),
            Endpoint(
                "GET", f"{TOPICS}/-/partitions/-/reassignment", self.rest_all_moves, moves, _TAG, None, reassigned
            ),
            Endpoint("GET", f"{TOPIC}/partitions/-/reassignment", self.rest_topic_moves, moves, _TAG, None, reassigned),
            Endpoint("GET", PARTITION, self.rest_partition, "A partition", _TAG, None, PartitionData),
            Endpoint(
                "GET",
                f"{PARTITION}/offset",
                self.rest_offsets,
                "First and next offset",
                _TAG,
                None,
                OffsetData,
            ),
            Endpoint("GET", f"{PARTITION}/replicas", self.rest_replicas, "Its one broker", _TAG, None, replicas),
            Endpoint(
                "GET",
                f"{PARTITION}/replicas/{{broker_id}}",
                self.rest_replica,
                "Its one broker",
                _TAG,
                None,
                ReplicaData,
            ),
            Endpoint(
                "GET",
                f"{CLUSTER}/brokers/{{broker_id}}/partition-replicas",
                self.rest_broker_replicas,
                "Partitions for which clients are sent to this broker",
                _TAG,
                None,
                replicas,
            ),
        ]

    async def rest_partitions(self, request: Request) -> Response:
        links, topic, brokers = await self._topic(request)
        found = [_partition(links, topic, index, brokers) for index in range(topic.partitions)]
        return answer(links.listed("KafkaPartitionList", found, "topics", topic.name, "partitions"))

    async def rest_partition(self, request: Request) -> Response:
        links, topic, index, brokers = await self._one(request)
        return answer(_partition(links, topic, index, brokers))

    async def rest_offsets(self, request: Request) -> Response:
        links, topic, index, _ = await self._one(request)
        queries = [OffsetQuery(topic.topic_id, index, which) for which in (EARLIEST, LATEST)]
        found = []
        for each in await self._streams.list_offsets(principal_of(request), queries):
            if isinstance(each, LakestreamError):
                raise each
            found.append(each.offset)
        return answer(
            OffsetData(
                kind="KafkaPartitionOffset",
                metadata=links.metadata("topics", topic.name, "partitions", index),
                cluster_id=links.cluster_id,
                topic_name=topic.name,
                partition_id=index,
                earliest_offset=found[0],
                latest_offset=found[1],
            )
        )

    async def rest_replicas(self, request: Request) -> Response:
        links, topic, index, brokers = await self._one(request)
        found = [_replica(links, topic, index, _preferred(topic, index, brokers))] if brokers else []
        return answer(links.listed("KafkaReplicaList", found, "topics", topic.name, "partitions", index, "replicas"))

    async def rest_replica(self, request: Request) -> Response:
        links, topic, index, brokers = await self._one(request)
        broker_id = path_number(request, "broker_id")
        if brokers and (broker := _preferred(topic, index, brokers)).broker_id == broker_id:
            return answer(_replica(links, topic, index, broker))
        raise RestError(404, f"Replica {broker_id} of partition {index} of topic {topic.name} cannot be found.")

    async def rest_broker_replicas(self, request: Request) -> Response:
        links, principal = links_of(request, self._streams), principal_of(request)
        brokers = await self._streams.describe_cluster(principal)
        broker_id = path_number(request, "broker_id")
        if broker_id not in [each.broker_id for each in brokers]:
            raise RestError(404, f"Broker {broker_id} cannot be found.")
        found = [
            _replica(links, topic, index, broker)
            for topic in await self._streams.topics.list(principal)
            for index in range(topic.partitions)
            if (broker := _preferred(topic, index, brokers)).broker_id == broker_id
        ]
        return answer(links.listed("KafkaReplicaList", found, "brokers", broker_id, "partition-replicas"))

    async def rest_all_moves(self, request: Request) -> Response:
        links = links_of(request, self._streams)
        await self._streams.describe_cluster(principal_of(request))
        found: list[Reassignment] = []
        return answer(links.listed("KafkaReassignmentList", found, "topics", "-", "partitions", "-", "reassignment"))

    async def rest_topic_moves(self, request: Request) -> Response:
        links, topic, _ = await self._topic(request)
        found: list[Reassignment] = []
        parts = ("topics", topic.name, "partitions", "-", "reassignment")
        return answer(links.listed("KafkaReassignmentList", found, *parts))

    async def _topic(self, request: Request) -> tuple[Links, Topic, list[Broker]]:
        links = links_of(request, self._streams)
        topic = await known_topic(request, self._streams)
        return links, topic, await self._streams.brokers(principal_of(request))

    async def _one(self, request: Request) -> tuple[Links, Topic, int, list[Broker]]:
        links, topic, brokers = await self._topic(request)
        index = path_number(request, "partition_id")
        if index >= topic.partitions:
            raise UnknownStream(f"topic {topic.name} has no partition {index}")
        return links, topic, index, brokers


def _preferred(topic: Topic, index: int, brokers: list[Broker]) -> Broker:
    return rendezvous(f"{topic.topic_id.hex}/{index}", brokers)


def _partition(links: Links, topic: Topic, index: int, brokers: list[Broker]) -> PartitionData:
    place = ("topics", topic.name, "partitions", index)
    leader = links.to(*place, "replicas", _preferred(topic, index, brokers).broker_id) if brokers else None
    return PartitionData(
        kind="KafkaPartition",
        metadata=links.metadata(*place),
        cluster_id=links.cluster_id,
        topic_name=topic.name,
        partition_id=index,
        leader=leader,
        replicas=links.to(*place, "replicas"),
        reassignment=links.to(*place, "reassignment"),
    )


def _replica(links: Links, topic: Topic, index: int, broker: Broker) -> ReplicaData:
    return ReplicaData(
        kind="KafkaReplica",
        metadata=links.metadata("topics", topic.name, "partitions", index, "replicas", broker.broker_id),
        cluster_id=links.cluster_id,
        topic_name=topic.name,
        partition_id=index,
        broker_id=broker.broker_id,
        is_leader=True,
        is_in_sync=True,
        broker=links.to("brokers", broker.broker_id),
    )
