"""A topic as the brokers tell of it: its id, where its logs begin and end, and what was where at a time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from lakestream.errors import RequestError, Unavailable, UnknownStream
from lakestream.metadata.topics.tables import clashing_name, table_name
from lakestream.spark_source.reading.tail import Address

_TIMEOUT_S: Final = 30.0
_UNSIGNED: Final = (1 << 64) - 1
_TABLE_NAME: Final = "lakestream.table.name"
_QUIET: Final = {"log_level": "2"}


@dataclass(frozen=True, slots=True)
class Log:
    """One look. `ends` are what committed readers may see. `brokers`: all there are, those first
    that have its newest records at hand."""

    topic_id: UUID
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    brokers: tuple[Address, ...]


class LogClient:
    """For planning; blocking. `settings` are librdkafka's."""

    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        protocol = settings.get("security.protocol", "plaintext")
        if protocol.lower() != "plaintext":
            raise RequestError(f"kafka.security.protocol {protocol} is not supported by this source: use plaintext")
        self._topic = topic
        self._admin = AdminClient({**_QUIET, **settings})

    def look(self) -> Log:
        """The topic's id is read before and after its offsets: they are of one topic, however often its name moves on.

        Raises:
            UnknownStream: there is no topic of that name.
            Unavailable: the brokers do not answer.
        """
        while True:
            before, partitions, leaders = self._describe()
            nodes = self._result(self._admin.describe_cluster(request_timeout=_TIMEOUT_S)).nodes
            brokers = tuple(dict.fromkeys((*leaders, *((node.host, node.port) for node in nodes))))
            starts = self._offsets(partitions, OffsetSpec.earliest())
            ends = self._offsets(partitions, OffsetSpec.latest())
            if self._describe()[0] == before:
                return Log(before, starts, ends, brokers)

    def tables(self) -> tuple[UUID, list[str]]:
        """The topic's id, and the names that its table may go by, by the cluster's rules: the one that its owner chose,
        else one made of its own, with the beginning of the id if that was another's."""
        topic_id = self._describe()[0]
        resource = ConfigResource(ConfigResource.Type.TOPIC, self._topic)
        configs = self._result(self._admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource])
        chosen = configs[_TABLE_NAME].value if _TABLE_NAME in configs else None
        name = table_name(self._topic, chosen or "")
        return topic_id, [str(name)] if chosen else [str(name), str(clashing_name(name, topic_id))]

    def first_at(self, log: Log, timestamp_ms: int, partitions: Iterable[int]) -> dict[int, int]:
        """Per partition the first offset whose record is not older; the log's end if there is none."""
        found = self._offsets(partitions, OffsetSpec.for_timestamp(timestamp_ms))
        return {partition: offset if offset >= 0 else log.ends[partition] for partition, offset in found.items()}

    def _describe(self) -> tuple[UUID, list[int], tuple[Address, ...]]:
        answer = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=_TIMEOUT_S)
        topic = self._result(answer[self._topic])
        parts = (topic.topic_id.get_most_significant_bits(), topic.topic_id.get_least_significant_bits())
        topic_id = UUID(int=(parts[0] & _UNSIGNED) << 64 | parts[1] & _UNSIGNED)
        leaders = [part.leader for part in topic.partitions if part.leader is not None]
        hints = tuple(dict.fromkeys((leader.host, leader.port) for leader in leaders))
        return topic_id, sorted(part.id for part in topic.partitions), hints

    def _offsets(self, partitions: Iterable[int], spec: OffsetSpec) -> dict[int, int]:
        asked = {TopicPartition(self._topic, partition): spec for partition in partitions}
        if not asked:
            return {}
        answers = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT_S
        )
        return {place.partition: self._result(future).offset for place, future in answers.items()}

    def _result(self, future: Any) -> Any:
        try:
            return future.result()
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise UnknownStream(f"there is no topic {self._topic!r}: create it, or correct its name") from error
            raise Unavailable(f"the brokers do not tell about topic {self._topic}: {reason.str()}") from error
