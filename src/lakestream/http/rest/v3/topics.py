"""`/v3/clusters/…/topics`: list, create, load, grow, delete."""

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lakestream.errors import LakestreamError
from lakestream.http.identity import principal_of
from lakestream.http.rest.answers import Link, Links, ResourceList, RestResource, answer, nothing
from lakestream.http.rest.endpoints import Endpoint
from lakestream.http.rest.errors import BAD_REQUEST, RestError
from lakestream.http.rest.requests import body_of
from lakestream.http.rest.v3.clusters import CLUSTER, links_of
from lakestream.metadata.topics.list import MAX_PARTITIONS, Topic, check_name
from lakestream.stream import Streams

TOPICS: Final = f"{CLUSTER}/topics"
TOPIC: Final = f"{TOPICS}/{{topic_name}}"
TAG: Final = "Topics"
_COPIES: Final = 1
"""Copies are the object store's."""


class TopicData(RestResource, frozen=True, kw_only=True):
    cluster_id: str
    topic_name: str
    is_internal: bool
    replication_factor: int
    partitions_count: int
    partitions: Link
    configs: Link
    partition_reassignments: Link
    authorized_operations: list[str]


class SentConfig(msgspec.Struct, frozen=True):
    name: str
    value: str | None = None


class SentTopic(msgspec.Struct, frozen=True):
    topic_name: str
    partitions_count: int | None = None
    replication_factor: int | None = None
    replicas_assignments: dict[str, list[int]] | None = None
    configs: list[SentConfig] = []
    validate_only: bool = False


class SentCount(msgspec.Struct, frozen=True):
    partitions_count: int


class TopicRoutes:
    def __init__(self, streams: Streams, num_partitions: int) -> None:
        """`num_partitions`: of a topic whose creator does not say."""
        self._streams = streams
        self._num_partitions = num_partitions

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("GET", TOPICS, self.rest_topics, "Topics", TAG, None, ResourceList[TopicData]),
            Endpoint("POST", TOPICS, self.rest_create_topic, "Create a topic", TAG, SentTopic, TopicData, 201),
            Endpoint("GET", TOPIC, self.rest_topic, "A topic", TAG, None, TopicData),
            Endpoint("PATCH", TOPIC, self.rest_grow_topic, "More partitions", TAG, SentCount, TopicData),
            Endpoint("DELETE", TOPIC, self.rest_delete_topic, "Delete a topic", TAG, status=204),
        ]

    async def rest_topics(self, request: Request) -> Response:
        links = links_of(request, self._streams)
        topics = await self._streams.topics.list(principal_of(request))
        return answer(links.listed("KafkaTopicList", [self._data(request, links, each) for each in topics], "topics"))

    async def rest_topic(self, request: Request) -> Response:
        links = links_of(request, self._streams)
        return answer(self._data(request, links, await known_topic(request, self._streams)))

    async def rest_create_topic(self, request: Request) -> Response:
        links, principal = links_of(request, self._streams), principal_of(request)
        sent = await body_of(request, SentTopic)
        check_name(sent.topic_name)
        configs = {each.name: each.value for each in sent.configs}
        given = {name: value for name, value in configs.items() if value is not None}
        if len(given) < len(sent.configs):
            raise RestError(BAD_REQUEST, "each setting needs one value")
        if sent.replication_factor is not None and sent.replication_factor < 1 and sent.replication_factor != -1:
            raise RestError(BAD_REQUEST, "Replication factor must be larger than 0.")
        partitions = await self._partitions(request, sent)
        if sent.validate_only:
            await self._streams.topics.check_new(principal, sent.topic_name, partitions, given)
            return answer(self._described(request, links, sent.topic_name, partitions))
        topic = await self._streams.topics.create(principal, sent.topic_name, partitions, given)
        headers = {"Location": links.path("topics", topic.name)}
        return answer(self._data(request, links, topic), 201, headers)

    async def rest_grow_topic(self, request: Request) -> Response:
        links, sent = links_of(request, self._streams), await body_of(request, SentCount)
        name = request.path_params["topic_name"]
        topic = await self._streams.topics.grow(principal_of(request), name, sent.partitions_count)
        return answer(self._data(request, links, topic))

    async def rest_delete_topic(self, request: Request) -> Response:
        links_of(request, self._streams)
        await self._streams.topics.delete(principal_of(request), request.path_params["topic_name"])
        return nothing()

    async def _partitions(self, request: Request, sent: SentTopic) -> int:
        """Raises `RestError`, `InvalidAssignment`."""
        if sent.replicas_assignments:
            if sorted(sent.replicas_assignments) != sorted(map(str, range(len(sent.replicas_assignments)))):
                raise RestError(BAD_REQUEST, "assign partitions 0, 1, 2, … without gaps, each once")
            assignments = [*sent.replicas_assignments.values()]
            await self._streams.topics.check_assignments(principal_of(request), assignments, len(assignments))
            return len(assignments)
        partitions = self._num_partitions if sent.partitions_count in (None, -1) else sent.partitions_count
        if partitions is None or not 1 <= partitions <= MAX_PARTITIONS:
            raise RestError(BAD_REQUEST, f"choose 1 to {MAX_PARTITIONS} partitions, not {partitions}")
        return partitions

    def _data(self, request: Request, links: Links, topic: Topic) -> TopicData:
        return self._described(request, links, topic.name, topic.partitions)

    def _described(self, request: Request, links: Links, name: str, partitions: int) -> TopicData:
        may = self._streams.topics.allowed(principal_of(request), name)
        return TopicData(
            kind="KafkaTopic",
            metadata=links.metadata("topics", name),
            cluster_id=links.cluster_id,
            topic_name=name,
            is_internal=False,
            replication_factor=_COPIES,
            partitions_count=partitions,
            partitions=links.to("topics", name, "partitions"),
            configs=links.to("topics", name, "configs"),
            partition_reassignments=links.to("topics", name, "partitions", "-", "reassignment"),
            authorized_operations=[each.name for each in may],
        )


async def known_topic(request: Request, streams: Streams) -> Topic:
    """Raises `UnknownStream`, `NotAuthorized`."""
    name = request.path_params["topic_name"]
    found = (await streams.topics.describe(principal_of(request), [name]))[name]
    if isinstance(found, LakestreamError):
        raise found
    return found
