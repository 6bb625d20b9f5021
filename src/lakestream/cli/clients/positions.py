"""Where a consumer group is, and where its topics begin and end, through the Kafka door."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from lakestream.cli.clients.admin import reason, topics
from lakestream.cli.console import fail
from lakestream.cli.options import REQUEST_TIMEOUT_S

_NO_GROUP: Final = "GROUP_ID_NOT_FOUND"

Partition = tuple[str, int]
Positions = dict[Partition, int]


def partition_counts(admin: AdminClient, bootstrap: str) -> dict[str, int]:
    """Every topic, with its number of partitions."""
    return {name: len(topic.partitions) for name, topic in topics(admin, bootstrap).items()}


def committed(admin: AdminClient, group: str) -> Positions:
    """What the group has committed: per partition the next offset it would read. Empty for a group that never did."""
    asked = ConsumerGroupTopicPartitions(group)
    try:
        [future] = admin.list_consumer_group_offsets([asked], request_timeout=REQUEST_TIMEOUT_S).values()
        found = future.result(REQUEST_TIMEOUT_S * 2).topic_partitions
    except (KafkaException, TimeoutError) as error:
        fail(f"the offsets of group {group!r} could not be read: {reason(error)}")
    return {(part.topic, part.partition): part.offset for part in found if part.offset >= 0}


def described(admin: AdminClient, group: str) -> Any:
    """State, coordinator and members. Ends the command if there is no such group."""
    try:
        [future] = admin.describe_consumer_groups([group], request_timeout=REQUEST_TIMEOUT_S).values()
        found = future.result(REQUEST_TIMEOUT_S * 2)
    except KafkaException as error:
        if error.args[0].name() == _NO_GROUP:
            _no_such(group)
        fail(f"group {group!r} could not be described: {reason(error)}")
    except TimeoutError as error:
        fail(f"group {group!r} could not be described: {reason(error)}")
    if found.state.name == "DEAD":
        _no_such(group)
    return found


def offsets_at(admin: AdminClient, partitions: Iterable[Partition], spec: OffsetSpec) -> Positions:
    """-1 where there is no such record."""
    asked = {TopicPartition(topic, index): spec for topic, index in partitions}
    if not asked:
        return {}
    try:
        futures = admin.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
        return {
            (part.topic, part.partition): future.result(REQUEST_TIMEOUT_S * 2).offset
            for part, future in futures.items()
        }
    except (KafkaException, TimeoutError) as error:
        fail(f"the offsets of the group's topics could not be read: {reason(error)}")


def store(admin: AdminClient, group: str, positions: Mapping[Partition, int]) -> None:
    """All at once; the broker refuses while the group has members. Ends the command if it does."""
    parts = [TopicPartition(topic, index, offset) for (topic, index), offset in positions.items()]
    try:
        [future] = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, parts)]).values()
        done = future.result(REQUEST_TIMEOUT_S * 2).topic_partitions
    except (KafkaException, TimeoutError) as error:
        fail(f"group {group!r} was not rewound: {reason(error)}")
    refused = [part for part in done if part.error is not None]
    if refused:
        names = ", ".join(f"{part.topic}/{part.partition}: {part.error.str()}" for part in refused)
        fail(f"group {group!r} was not rewound everywhere: {names}; run the command again")


def _no_such(group: str) -> None:
    fail(f"there is no group {group!r}; `lakestream group list` shows those that are")
