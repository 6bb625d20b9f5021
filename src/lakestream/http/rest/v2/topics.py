"""Version 2: `/topics`, `/brokers`, and records to topics and partitions, all of a request at once."""

from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lakestream.errors import LakestreamError, UnknownStream
from lakestream.http.identity import principal_of
from lakestream.http.rest.endpoints import Endpoint
from lakestream.http.rest.errors import INVALID_PAYLOAD, Fault, RestError
from lakestream.http.rest.producing.encoding import RecordEncoder, WantedRecord
from lakestream.http.rest.producing.sent import NULL, SentData, SentRecord
from lakestream.http.rest.producing.writing import RecordWriter
from lakestream.http.rest.requests import bytes_of, decoded, path_number
from lakestream.http.rest.v2.media import EMBEDDED, V2, sent_format, told
from lakestream.metadata.brokers import Broker, rendezvous
from lakestream.metadata.topics.list import Topic
from lakestream.metrics import RestMetrics
from lakestream.stream import EARLIEST, LATEST, OffsetQuery, Streams
from lakestream.stream.configs import topic_configs

_TAG: Final = "Version 2"
_BODY_MOST: Final = 16 << 20
_TOPIC: Final = "/topics/{topic_name}"
_PARTITION: Final = f"{_TOPIC}/partitions/{{partition_id}}"
_KEY_SCHEMA_MISSING: Final = 42201
_VALUE_SCHEMA_MISSING: Final = 42202
_PLAIN: Final = ("BINARY", "JSON")
_NOT_RETRIABLE: Final = 1
_RETRIABLE: Final = 2


class SentRow(msgspec.Struct, frozen=True, gc=False):
    value: msgspec.Raw = msgspec.field(default_factory=lambda: NULL)
    key: msgspec.Raw = msgspec.field(default_factory=lambda: NULL)
    partition: int | None = None


class SentRows(msgspec.Struct, frozen=True):
    records: list[SentRow]
    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None


class RowReport(msgspec.Struct, frozen=True, gc=False):
    """`error_code`: 1 for what stays wrong, 2 for what may be tried again."""

    partition: int | None
    offset: int | None
    error_code: int | None = None
    error: str | None = None


class RowReports(msgspec.Struct, frozen=True):
    offsets: list[RowReport]
    key_schema_id: int | None
    value_schema_id: int | None


class Replica(msgspec.Struct, frozen=True):
    broker: int
    leader: bool
    in_sync: bool


class PartitionFacts(msgspec.Struct, frozen=True):
    partition: int
    leader: int | None
    replicas: list[Replica]


class TopicFacts(msgspec.Struct, frozen=True):
    name: str
    configs: dict[str, str | None]
    partitions: list[PartitionFacts]


class BrokerIds(msgspec.Struct, frozen=True):
    brokers: list[int]


class PartitionEnds(msgspec.Struct, frozen=True):
    beginning_offset: int
    end_offset: int


class TopicsV2:
    def __init__(self, streams: Streams, encoder: RecordEncoder, writer: RecordWriter, metrics: RestMetrics) -> None:
        self._streams = streams
        self._encoder = encoder
        self._writer = writer
        self._metrics = metrics

    def endpoints(self) -> list[Endpoint]:
        v2, every = (V2,), (*EMBEDDED, V2)
        produce = "Write records"
        return [
            Endpoint("GET", "/brokers", self.v2_brokers, "Brokers alive", _TAG, None, BrokerIds, answers=v2),
            Endpoint("GET", "/topics", self.v2_topics, "Names of topics", _TAG, None, list[str], answers=v2),
            Endpoint("GET", _TOPIC, self.v2_topic, "A topic", _TAG, None, TopicFacts, answers=v2),
            Endpoint("POST", _TOPIC, self.v2_produce, produce, _TAG, SentRows, RowReports, bodies=every, answers=v2),
            Endpoint(
                "GET",
                f"{_TOPIC}/partitions",
                self.v2_partitions,
                "Its partitions",
                _TAG,
                None,
                list[PartitionFacts],
                answers=v2,
            ),
            Endpoint("GET", _PARTITION, self.v2_partition, "A partition", _TAG, None, PartitionFacts, answers=v2),
            Endpoint(
                "GET", f"{_PARTITION}/offsets", self.v2_ends, "Its offsets", _TAG, None, PartitionEnds, answers=v2
            ),
            Endpoint(
                "POST",
                _PARTITION,
                self.v2_produce_partition,
                produce,
                _TAG,
                SentRows,
                RowReports,
                bodies=every,
                answers=v2,
            ),
        ]

    async def v2_brokers(self, request: Request) -> Response:
        brokers = await self._streams.describe_cluster(principal_of(request))
        return told(BrokerIds([each.broker_id for each in brokers]))

    async def v2_topics(self, request: Request) -> Response:
        return told([each.name for each in await self._streams.topics.list(principal_of(request))])

    async def v2_topic(self, request: Request) -> Response:
        topic, brokers = await self._known(request)
        configs = topic_configs(topic.configs, self._streams.topics.max_batch_bytes)
        partitions = [_facts(topic, index, brokers) for index in range(topic.partitions)]
        return told(TopicFacts(topic.name, {each.name: each.value for each in configs}, partitions))

    async def v2_partitions(self, request: Request) -> Response:
        topic, brokers = await self._known(request)
        return told([_facts(topic, index, brokers) for index in range(topic.partitions)])

    async def v2_partition(self, request: Request) -> Response:
        topic, brokers = await self._known(request)
        return told(_facts(topic, _index(request, topic), brokers))

    async def v2_ends(self, request: Request) -> Response:
        topic, _ = await self._known(request)
        index, found = _index(request, topic), []
        queries = [OffsetQuery(topic.topic_id, index, which) for which in (EARLIEST, LATEST)]
        for each in await self._streams.list_offsets(principal_of(request), queries):
            if isinstance(each, LakestreamError):
                raise each
            found.append(each.offset)
        return told(PartitionEnds(*found))

    async def v2_produce(self, request: Request) -> Response:
        return await self._produce(request, await self._writable(request), None)

    async def v2_produce_partition(self, request: Request) -> Response:
        topic = await self._writable(request)
        return await self._produce(request, topic, _index(request, topic))

    async def _produce(self, request: Request, topic: Topic, partition: int | None) -> Response:
        form, principal = sent_format(request).upper(), principal_of(request)
        await self._writer.room()
        data = await bytes_of(request, _BODY_MOST)
        if not data.strip():
            raise RestError(INVALID_PAYLOAD, "Payload error. Null input provided. Data is required.")
        sent = decoded(data, SentRows)
        _check_schemas(sent, form)
        records = [_record(each, sent, form, partition) for each in sent.records]
        wanted = await self._encoder.encoded(principal, topic.name, records)
        taken = await self._writer.take(principal, topic, wanted)
        reports = []
        for outcome in await taken.outcomes():
            if isinstance(outcome, Fault):
                self._metrics.refused(outcome.code)
                code = _RETRIABLE if outcome.status in (429, 503, 500) else _NOT_RETRIABLE
                reports.append(RowReport(None, None, code, outcome.message))
            else:
                reports.append(RowReport(outcome.partition, outcome.offset))
        ids = _schema_ids(wanted)
        return told(RowReports(reports, *ids))

    async def _writable(self, request: Request) -> Topic:
        """Raises `RestError`, `NotAuthorized`."""
        try:
            return await self._writer.topic(principal_of(request), request.path_params["topic_name"])
        except UnknownStream as error:
            raise RestError(40401, "Topic not found.") from error

    async def _known(self, request: Request) -> tuple[Topic, list[Broker]]:
        name, principal = request.path_params["topic_name"], principal_of(request)
        found = (await self._streams.topics.describe(principal, [name]))[name]
        if isinstance(found, UnknownStream):
            raise RestError(40401, "Topic not found.")
        if isinstance(found, LakestreamError):
            raise found
        return found, await self._streams.brokers(principal)


def _index(request: Request, topic: Topic) -> int:
    index = path_number(request, "partition_id")
    if index >= topic.partitions:
        raise RestError(40402, "Partition not found.")
    return index


def _facts(topic: Topic, index: int, brokers: list[Broker]) -> PartitionFacts:
    if not brokers:
        return PartitionFacts(index, None, [])
    leader = rendezvous(f"{topic.topic_id.hex}/{index}", brokers).broker_id
    return PartitionFacts(index, leader, [Replica(leader, leader=True, in_sync=True)])


def _check_schemas(sent: SentRows, form: str) -> None:
    """Raises `RestError`."""
    if form in _PLAIN:
        return
    has_keys = any(bytes(each.key) != b"null" for each in sent.records)
    if has_keys and sent.key_schema is None and sent.key_schema_id is None:
        raise RestError(_KEY_SCHEMA_MISSING, "Request includes keys but does not include key schema")
    has_values = any(bytes(each.value) != b"null" for each in sent.records)
    if has_values and sent.value_schema is None and sent.value_schema_id is None:
        raise RestError(_VALUE_SCHEMA_MISSING, "Request includes values but does not include value schema")


def _record(row: SentRow, sent: SentRows, form: str, partition: int | None) -> SentRecord:
    if form in _PLAIN:
        key, value = (None if bytes(each) == b"null" else SentData(each, form) for each in (row.key, row.value))
        return SentRecord(row.partition if partition is None else partition, None, key, value)
    return SentRecord(
        row.partition if partition is None else partition,
        None,
        _data(row.key, form, sent.key_schema_id, sent.key_schema),
        _data(row.value, form, sent.value_schema_id, sent.value_schema),
    )


def _data(data: msgspec.Raw, form: str, schema_id: int | None, schema: str | None) -> SentData | None:
    if bytes(data) == b"null":
        return None
    return SentData(data, form, schema_id=schema_id, schema=None if schema_id is not None else schema)


def _schema_ids(wanted: Sequence[WantedRecord | Fault]) -> tuple[int | None, int | None]:
    known = [each for each in wanted if isinstance(each, WantedRecord)]
    keys = [each.key_schema.schema.schema_id for each in known if each.key_schema is not None]
    values = [each.value_schema.schema.schema_id for each in known if each.value_schema is not None]
    return keys[0] if keys else None, values[0] if values else None
