"""`/v3/clusters/…/consumer-groups`: groups, their members, what those are assigned, and how far they are behind."""

from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from lakestream.coordination.groups.looking import GroupViews, SeenGroup, SeenMember
from lakestream.errors import LakestreamError
from lakestream.http.identity import principal_of
from lakestream.http.rest.answers import Link, Links, ResourceList, RestResource, answer
from lakestream.http.rest.endpoints import Endpoint
from lakestream.http.rest.errors import RestError
from lakestream.http.rest.requests import path_number
from lakestream.http.rest.v3.clusters import CLUSTER, links_of
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition
from lakestream.stream import LATEST, OffsetQuery, Streams, TopicKey

_TAG: Final = "Consumer groups"
_GROUPS: Final = f"{CLUSTER}/consumer-groups"
_GROUP: Final = f"{_GROUPS}/{{consumer_group_id}}"
_LAG: Final = f"{_GROUP}/lags/{{topic_name}}/partitions/{{partition_id}}"
_CONSUMER: Final = f"{_GROUP}/consumers/{{consumer_id}}"
_ASSIGNMENT: Final = f"{_CONSUMER}/assignments/{{topic_name}}/partitions/{{partition_id}}"
_STATES: Final = {"PREPARING": "PREPARING_REBALANCE", "COMPLETING": "COMPLETING_REBALANCE"}


class GroupData(RestResource, frozen=True, kw_only=True):
    cluster_id: str
    consumer_group_id: str
    is_simple: bool
    partition_assignor: str
    state: str
    type: str
    is_mixed_consumer_group: bool
    coordinator: Link | None
    consumers: Link
    lag_summary: Link


class ConsumerData(RestResource, frozen=True, kw_only=True):
    cluster_id: str
    consumer_group_id: str
    consumer_id: str
    instance_id: str | None
    client_id: str
    assignments: Link


class AssignmentData(RestResource, frozen=True, kw_only=True):
    cluster_id: str
    consumer_group_id: str
    consumer_id: str
    topic_name: str
    partition_id: int
    partition: Link
    lag: Link


class LagData(RestResource, frozen=True, kw_only=True):
    cluster_id: str
    consumer_group_id: str
    topic_name: str
    partition_id: int
    current_offset: int
    log_end_offset: int
    lag: int
    consumer_id: str
    instance_id: str | None
    client_id: str


class LagSummary(RestResource, frozen=True, kw_only=True):
    cluster_id: str
    consumer_group_id: str
    max_lag_consumer_id: str
    max_lag_instance_id: str | None
    max_lag_client_id: str
    max_lag_topic_name: str
    max_lag_partition_id: int
    max_lag: int
    total_lag: int
    max_lag_consumer: Link
    max_lag_partition: Link


class _Assigned(NamedTuple):
    member: SeenMember
    topic: str
    partition: int


class GroupRoutes:
    def __init__(self, streams: Streams, groups: GroupViews) -> None:
        self._streams = streams
        self._groups = groups

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("GET", _GROUPS, self.rest_groups, "Groups", _TAG, None, ResourceList[GroupData]),
            Endpoint("GET", _GROUP, self.rest_group, "A group", _TAG, None, GroupData),
            Endpoint(
                "GET", f"{_GROUP}/consumers", self.rest_consumers, "Its members", _TAG, None, ResourceList[ConsumerData]
            ),
            Endpoint("GET", _CONSUMER, self.rest_consumer, "A member", _TAG, None, ConsumerData),
            Endpoint(
                "GET",
                f"{_CONSUMER}/assignments",
                self.rest_assignments,
                "What a member reads",
                _TAG,
                None,
                ResourceList[AssignmentData],
            ),
            Endpoint("GET", _ASSIGNMENT, self.rest_assignment, "A partition that it reads", _TAG, None, AssignmentData),
            Endpoint("GET", f"{_GROUP}/lag-summary", self.rest_lag_summary, "The lag in all", _TAG, None, LagSummary),
            Endpoint("GET", f"{_GROUP}/lags", self.rest_lags, "Lags by partition", _TAG, None, ResourceList[LagData]),
            Endpoint("GET", _LAG, self.rest_lag, "The lag of a partition", _TAG, None, LagData),
        ]

    async def rest_groups(self, request: Request) -> Response:
        links, principal = links_of(request, self._streams), principal_of(request)
        found = []
        for name in await self._groups.names(principal):
            group = await self._groups.seen(principal, name)
            if group is not None:
                found.append(_group(links, group))
        return answer(links.listed("KafkaConsumerGroupList", found, "consumer-groups"))

    async def rest_group(self, request: Request) -> Response:
        links, group = await self._group(request)
        return answer(_group(links, group))

    async def rest_consumers(self, request: Request) -> Response:
        links, group = await self._group(request)
        found = [_consumer(links, group, each) for each in group.members]
        return answer(links.listed("KafkaConsumerList", found, "consumer-groups", group.name, "consumers"))

    async def rest_consumer(self, request: Request) -> Response:
        links, group = await self._group(request)
        return answer(_consumer(links, group, _member(request, group)))

    async def rest_assignments(self, request: Request) -> Response:
        links, group = await self._group(request)
        member = _member(request, group)
        found = [
            _assignment(links, group, each) for each in await self._assigned(request, group) if each.member is member
        ]
        place = ("consumer-groups", group.name, "consumers", member.member_id, "assignments")
        return answer(links.listed("KafkaConsumerAssignmentList", found, *place))

    async def rest_assignment(self, request: Request) -> Response:
        links, group = await self._group(request)
        member, asked = (
            _member(request, group),
            (request.path_params["topic_name"], path_number(request, "partition_id")),
        )
        for each in await self._assigned(request, group):
            if each.member is member and (each.topic, each.partition) == asked:
                return answer(_assignment(links, group, each))
        raise RestError(404, f"Consumer {member.member_id} does not read partition {asked[1]} of topic {asked[0]}.")

    async def rest_lag_summary(self, request: Request) -> Response:
        links, group = await self._group(request)
        lags = await self._lags(request, links, group)
        if not lags:
            raise RestError(404, f"Consumer group {group.name} has committed no offsets.")
        most = max(lags, key=lambda each: each.lag)
        place = ("consumer-groups", group.name)
        return answer(
            LagSummary(
                kind="KafkaConsumerGroupLagSummary",
                metadata=links.metadata(*place, "lag-summary"),
                cluster_id=links.cluster_id,
                consumer_group_id=group.name,
                max_lag_consumer_id=most.consumer_id,
                max_lag_instance_id=most.instance_id,
                max_lag_client_id=most.client_id,
                max_lag_topic_name=most.topic_name,
                max_lag_partition_id=most.partition_id,
                max_lag=most.lag,
                total_lag=sum(each.lag for each in lags),
                max_lag_consumer=links.to(*place, "consumers", most.consumer_id),
                max_lag_partition=links.to("topics", most.topic_name, "partitions", most.partition_id),
            )
        )

    async def rest_lags(self, request: Request) -> Response:
        links, group = await self._group(request)
        lags = await self._lags(request, links, group)
        return answer(links.listed("KafkaConsumerLagList", lags, "consumer-groups", group.name, "lags"))

    async def rest_lag(self, request: Request) -> Response:
        links, group = await self._group(request)
        asked = (request.path_params["topic_name"], path_number(request, "partition_id"))
        for each in await self._lags(request, links, group):
            if (each.topic_name, each.partition_id) == asked:
                return answer(each)
        raise RestError(
            404, f"Consumer group {group.name} has committed nothing of partition {asked[1]} of {asked[0]}."
        )

    async def _group(self, request: Request) -> tuple[Links, SeenGroup]:
        links, name = links_of(request, self._streams), request.path_params["consumer_group_id"]
        group = await self._groups.seen(principal_of(request), name)
        if group is None:
            raise RestError(404, f"Consumer Group {name[:200]} could not be found.")
        return links, group

    async def _assigned(self, request: Request, group: SeenGroup) -> list[_Assigned]:
        """Of topics that the caller may describe, by name and partition."""
        keys: set[TopicKey] = {key for member in group.members for key in member.assigned}
        found = await self._streams.topics.describe(principal_of(request), keys)

        def each() -> Iterator[_Assigned]:
            for member in group.members:
                for key, indexes in member.assigned.items():
                    topic = found[key]
                    if isinstance(topic, Topic):
                        yield from (_Assigned(member, topic.name, index) for index in indexes)

        return sorted(each(), key=lambda one: (one.topic, one.partition))

    async def _lags(self, request: Request, links: Links, group: SeenGroup) -> list[LagData]:
        principal = principal_of(request)
        offsets = await self._groups.offsets(principal, group.name)
        ids: set[UUID] = {partition.topic_id for partition in offsets}
        topics = await self._streams.topics.describe(principal, ids)
        known = [
            (topic.name, partition)
            for partition in offsets
            if isinstance(topic := topics[partition.topic_id], Topic) and partition.index < topic.partitions
        ]
        known.sort(key=lambda one: (one[0], one[1].index))
        ends = await self._streams.list_offsets(
            principal, [OffsetQuery(partition.topic_id, partition.index, LATEST) for _, partition in known]
        )
        members = {(each.topic, each.partition): each.member for each in await self._assigned(request, group)}
        return [
            _lag(
                links,
                group,
                name,
                partition,
                offsets[partition].offset,
                end.offset,
                members.get((name, partition.index)),
            )
            for (name, partition), end in zip(known, ends, strict=True)
            if not isinstance(end, LakestreamError)
        ]


def _member(request: Request, group: SeenGroup) -> SeenMember:
    asked = request.path_params["consumer_id"]
    for member in group.members:
        if member.member_id == asked:
            return member
    raise RestError(404, f"Consumer {asked[:200]} could not be found in group {group.name}.")


def _group(links: Links, group: SeenGroup) -> GroupData:
    place, state = ("consumer-groups", group.name), group.state.name
    return GroupData(
        kind="KafkaConsumerGroup",
        metadata=links.metadata(*place),
        cluster_id=links.cluster_id,
        consumer_group_id=group.name,
        is_simple=not group.protocol_type,
        partition_assignor=group.assignor,
        state=_STATES.get(state, state),
        type=group.kind.upper(),
        is_mixed_consumer_group=group.kind == "consumer" and any(each.is_classic for each in group.members),
        coordinator=None if group.coordinator is None else links.to("brokers", group.coordinator),
        consumers=links.to(*place, "consumers"),
        lag_summary=links.to(*place, "lag-summary"),
    )


def _consumer(links: Links, group: SeenGroup, member: SeenMember) -> ConsumerData:
    place = ("consumer-groups", group.name, "consumers", member.member_id)
    return ConsumerData(
        kind="KafkaConsumer",
        metadata=links.metadata(*place),
        cluster_id=links.cluster_id,
        consumer_group_id=group.name,
        consumer_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        assignments=links.to(*place, "assignments"),
    )


def _assignment(links: Links, group: SeenGroup, each: _Assigned) -> AssignmentData:
    where = (each.topic, "partitions", each.partition)
    return AssignmentData(
        kind="KafkaConsumerAssignment",
        metadata=links.metadata(
            "consumer-groups", group.name, "consumers", each.member.member_id, "assignments", *where
        ),
        cluster_id=links.cluster_id,
        consumer_group_id=group.name,
        consumer_id=each.member.member_id,
        topic_name=each.topic,
        partition_id=each.partition,
        partition=links.to("topics", *where),
        lag=links.to("consumer-groups", group.name, "lags", *where),
    )


def _lag(
    links: Links,
    group: SeenGroup,
    topic: str,
    partition: StreamPartition,
    current: int,
    end: int,
    member: SeenMember | None,
) -> LagData:
    return LagData(
        kind="KafkaConsumerLag",
        metadata=links.metadata("consumer-groups", group.name, "lags", topic, "partitions", partition.index),
        cluster_id=links.cluster_id,
        consumer_group_id=group.name,
        topic_name=topic,
        partition_id=partition.index,
        current_offset=current,
        log_end_offset=end,
        lag=max(0, end - current),
        consumer_id="" if member is None else member.member_id,
        instance_id=None if member is None else member.instance_id,
        client_id="" if member is None else member.client_id,
    )
