"""Version 2: `/consumers/<group>`: consumers that live at this door, and what they read and commit."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lakestream.access import Operation, Principal
from lakestream.coordination.groups.looking import GroupViews
from lakestream.errors import NotAuthorized, Unavailable
from lakestream.http.identity import principal_of
from lakestream.http.rest.answers import nothing
from lakestream.http.rest.endpoints import Endpoint, Query
from lakestream.http.rest.errors import BAD_REQUEST, RestError
from lakestream.http.rest.reading.showing import RecordShower
from lakestream.http.rest.requests import body_of, optional_body_of, query_number
from lakestream.http.rest.v2.instances import BEGINNING, END, ConsumerInstance, Instances, InstanceSettings
from lakestream.http.rest.v2.media import EMBEDDED, FORMATS, V2, accepts_format, told
from lakestream.metadata.topics.list import check_name
from lakestream.metrics import RestMetrics
from lakestream.runtime import Runtime, format_host_port
from lakestream.stream import Streams

_TAG: Final = "Version 2"
_GROUP: Final = "/consumers/{group_name}"
_INSTANCE: Final = f"{_GROUP}/instances/{{instance}}"
_BYTES_MOST: Final = 64 << 20
_WAIT_MOST_MS: Final = 60_000
_INVALID_CONFIG: Final = 42204
_RESETS: Final = ("earliest", "latest", "none")
_NAME_MOST: Final = 255
_SHOWN_AS: Final = {"binary": "binary", "json": "json", "avro": "schema", "protobuf": "schema", "jsonschema": "schema"}


class SentInstance(msgspec.Struct, frozen=True):
    id: str | None = None
    name: str | None = None
    format: str | None = None
    offset_reset: str | None = msgspec.field(default=None, name="auto.offset.reset")
    auto_commit: str | bool | None = msgspec.field(default=None, name="auto.commit.enable")
    min_bytes: str | int | None = msgspec.field(default=None, name="fetch.min.bytes")
    wait_ms: str | int | None = msgspec.field(default=None, name="consumer.request.timeout.ms")


class MadeInstance(msgspec.Struct, frozen=True):
    instance_id: str
    base_uri: str


class PartitionName(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class PartitionNames(msgspec.Struct, frozen=True):
    partitions: list[PartitionName]


class PartitionOffset(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    offset: int
    metadata: str | None = None


class PartitionOffsets(msgspec.Struct, frozen=True):
    offsets: list[PartitionOffset]


class SentSubscription(msgspec.Struct, frozen=True):
    topics: list[str] | None = None
    topic_pattern: str | None = None


class SubscribedTopics(msgspec.Struct, frozen=True):
    topics: list[str]


class ConsumedRecord(msgspec.Struct, frozen=True):
    topic: str
    key: Any
    value: Any
    partition: int
    offset: int


class ConsumersV2:
    def __init__(
        self,
        streams: Streams,
        groups: GroupViews,
        shower: RecordShower,
        runtime: Runtime,
        metrics: RestMetrics,
        advertised: str,
    ) -> None:
        """`advertised`: host:port of this very door, where it is not the one that clients call."""
        self._streams = streams
        self._groups = groups
        self._shower = shower
        self._runtime = runtime
        self._metrics = metrics
        self._advertised = advertised
        self.instances = Instances(metrics)

    def endpoints(self) -> list[Endpoint]:
        answers = (V2,)

        def at(method: str, path: str, handler: Any, summary: str, body: Any = None, answer: Any = None) -> Endpoint:
            status = 200 if answer is not None else 204
            bodies = (V2, "application/json")
            return Endpoint(
                method,
                f"{_INSTANCE}{path}",
                handler,
                summary,
                _TAG,
                body,
                answer,
                status,
                bodies=bodies,
                answers=answers,
            )

        waiting = (
            Query("timeout", {"type": "integer", "minimum": -1, "maximum": _WAIT_MOST_MS}, "Milliseconds to wait"),
            Query("max_bytes", {"type": "integer", "minimum": -1, "maximum": _BYTES_MOST}, "Of keys and values"),
        )
        return [
            Endpoint(
                "POST",
                _GROUP,
                self.v2_make,
                "A consumer at this door",
                _TAG,
                SentInstance,
                MadeInstance,
                bodies=(V2, "application/json"),
                answers=answers,
            ),
            at("DELETE", "", self.v2_end, "It leaves its group"),
            at("POST", "/subscription", self.v2_subscribe, "Read these topics", SentSubscription),
            at("GET", "/subscription", self.v2_subscription, "Topics that it reads", None, SubscribedTopics),
            at("DELETE", "/subscription", self.v2_unsubscribe, "Read nothing"),
            at("POST", "/assignments", self.v2_assign, "Read these partitions", PartitionNames),
            at("GET", "/assignments", self.v2_assignments, "Partitions that it reads", None, PartitionNames),
            at("POST", "/positions", self.v2_seek, "Go on from there", PartitionOffsets),
            at("POST", "/positions/beginning", self.v2_seek_beginning, "From the first offset", PartitionNames),
            at("POST", "/positions/end", self.v2_seek_end, "From the last offset", PartitionNames),
            replace(
                at("POST", "/offsets", self.v2_commit, "Commit these, or all that was read", PartitionOffsets),
                status=200,
                is_body_required=False,
            ),
            at("GET", "/offsets", self.v2_committed, "What is committed", PartitionNames, PartitionOffsets),
            Endpoint(
                "GET",
                f"{_INSTANCE}/records",
                self.v2_records,
                "What comes",
                _TAG,
                None,
                list[ConsumedRecord],
                query=waiting,
                answers=EMBEDDED,
            ),
        ]

    async def v2_make(self, request: Request) -> Response:
        principal, group = principal_of(request), request.path_params["group_name"]
        self._groups.check(principal, Operation.READ, group)
        sent = await optional_body_of(request, SentInstance) or SentInstance()
        settings = _settings(sent)
        name = sent.id or sent.name or f"rest-consumer-{self._runtime.new_id()}"
        if len(name) > _NAME_MOST or "/" in name or not name.isprintable():
            raise RestError(_INVALID_CONFIG, "Invalid consumer configuration: this is no name for an instance")
        brokers = await self._streams.brokers(principal)
        if not brokers:
            raise Unavailable("no broker is alive")
        bootstrap = ",".join(format_host_port(each.host, each.port) for each in brokers)
        self.instances.make(principal, group, name, settings, bootstrap)
        prefix = request.url.path.partition("/consumers/")[0]
        place = f"{request.url.scheme}://{self._advertised or request.url.netloc}{prefix}"
        return told(MadeInstance(name, f"{place}/consumers/{quote(group, safe='')}/instances/{name}"))

    async def v2_end(self, request: Request) -> Response:
        await self.instances.end(self._instance(request))
        return nothing()

    async def v2_subscribe(self, request: Request) -> Response:
        instance, sent = self._instance(request), await body_of(request, SentSubscription)
        if (sent.topics is None) == (sent.topic_pattern is None):
            raise RestError(422, "a subscription has either topics or a topic_pattern")
        if sent.topic_pattern is not None:
            topics: Sequence[str] = [f"^{sent.topic_pattern.removeprefix('^')}"]
        else:
            topics = sent.topics or ()
            for name in topics:
                check_name(name)
            await self._check_topics(principal_of(request), topics)
        async with instance.lock:
            if topics:
                instance.subscribe(topics)
            else:
                instance.unsubscribe()
        return nothing()

    async def v2_subscription(self, request: Request) -> Response:
        return told(SubscribedTopics([*self._instance(request).topics]))

    async def v2_unsubscribe(self, request: Request) -> Response:
        instance = self._instance(request)
        async with instance.lock:
            instance.unsubscribe()
        return nothing()

    async def v2_assign(self, request: Request) -> Response:
        instance, sent = self._instance(request), await body_of(request, PartitionNames)
        await self._check_topics(principal_of(request), [each.topic for each in sent.partitions])
        async with instance.lock:
            instance.assign(_places(sent))
        return nothing()

    async def v2_assignments(self, request: Request) -> Response:
        found = self._instance(request).assignment()
        return told(PartitionNames([PartitionName(*each) for each in found]))

    async def v2_seek(self, request: Request) -> Response:
        instance, sent = self._instance(request), await body_of(request, PartitionOffsets)
        for each in sent.offsets:
            _check_place(each)
        async with instance.lock:
            instance.seek([(each.topic, each.partition, each.offset) for each in sent.offsets])
        return nothing()

    async def v2_seek_beginning(self, request: Request) -> Response:
        return await self._seek_all(request, BEGINNING)

    async def v2_seek_end(self, request: Request) -> Response:
        return await self._seek_all(request, END)

    async def _seek_all(self, request: Request, where: int) -> Response:
        instance, sent = self._instance(request), await body_of(request, PartitionNames)
        async with instance.lock:
            instance.seek([(*each, where) for each in _places(sent)])
        return nothing()

    async def v2_commit(self, request: Request) -> Response:
        """The offset of a record that was processed: what is committed is the one after it, as in Confluent's."""
        instance, sent = self._instance(request), await optional_body_of(request, PartitionOffsets)
        for each in () if sent is None else sent.offsets:
            _check_place(each)
        offsets = None if sent is None else [(each.topic, each.partition, each.offset + 1) for each in sent.offsets]
        async with instance.lock:
            await instance.commit(offsets)
        return nothing(200)

    async def v2_committed(self, request: Request) -> Response:
        instance, sent = self._instance(request), await body_of(request, PartitionNames)
        async with instance.lock:
            found = await instance.committed(_places(sent))
        return told(PartitionOffsets([PartitionOffset(*each) for each in found]))

    async def v2_records(self, request: Request) -> Response:
        principal, instance = principal_of(request), self._instance(request)
        settings = instance.settings
        if not accepts_format(request, settings.form):
            raise RestError(
                40601, "The requested embedded data format does not match the deserializer for this consumer instance"
            )
        wait_ms = query_number(request, "timeout", -1, -1, _WAIT_MOST_MS)
        max_bytes = query_number(request, "max_bytes", -1, -1, _BYTES_MOST)
        async with instance.lock:
            found = await instance.records(
                _BYTES_MOST if max_bytes < 0 else max_bytes, settings.wait_ms if wait_ms < 0 else wait_ms
            )
            for topic in {each.topic() for each in found}:
                if Operation.READ not in self._streams.topics.allowed(principal, topic):
                    raise NotAuthorized(f"{principal} may not read topic {topic}", "topic")
            records = await self._shown(found, settings.form)
            instance.given(found)
        self._metrics.read(len(records))
        return told(records, kind=f"application/vnd.kafka.{settings.form}.v2+json")

    async def _shown(self, found: Sequence[Any], form: str) -> list[ConsumedRecord]:
        """Raises `RestError`."""
        shown_as = _SHOWN_AS[form]
        for values in ([each.key() for each in found], [each.value() for each in found]):
            await self._shower.learn(values, shown_as)

        def data(value: bytes | None) -> Any:
            shown = self._shower.data(value, shown_as)
            return None if shown is None else shown.data

        return [
            ConsumedRecord(each.topic(), data(each.key()), data(each.value()), each.partition(), each.offset())
            for each in found
        ]

    async def _check_topics(self, principal: Principal, names: Sequence[str]) -> None:
        """Those that are not there may come. Raises `NotAuthorized`."""
        for found in (await self._streams.find(principal, Operation.READ, names)).values():
            if isinstance(found, NotAuthorized):
                raise found

    def _instance(self, request: Request) -> ConsumerInstance:
        """Raises `RestError`, `NotAuthorized`."""
        principal, group = principal_of(request), request.path_params["group_name"]
        self._groups.check(principal, Operation.READ, group)
        return self.instances.find(principal, group, request.path_params["instance"])


def _places(sent: PartitionNames) -> list[tuple[str, int]]:
    for each in sent.partitions:
        _check_place(each)
    return [(each.topic, each.partition) for each in sent.partitions]


def _check_place(sent: PartitionName | PartitionOffset) -> None:
    """Raises `RestError`, `InvalidName`."""
    check_name(sent.topic)
    if not 0 <= sent.partition < 1 << 31:
        raise RestError(40402, "Partition not found.")
    if isinstance(sent, PartitionOffset) and not 0 <= sent.offset < (1 << 63) - 1:
        raise RestError(BAD_REQUEST, f"there is no offset {sent.offset}")


def _settings(sent: SentInstance) -> InstanceSettings:
    """Raises `RestError`."""
    form, reset = (sent.format or "binary").lower(), (sent.offset_reset or "latest").lower()
    if form not in FORMATS:
        raise RestError(_INVALID_CONFIG, f"Invalid consumer configuration: Invalid format type {form[:50]}")
    if reset not in _RESETS:
        raise RestError(_INVALID_CONFIG, f"Invalid consumer configuration: auto.offset.reset={reset[:50]}")
    commits = str(True if sent.auto_commit is None else sent.auto_commit).lower()
    if commits not in ("true", "false"):
        raise RestError(_INVALID_CONFIG, f"Invalid consumer configuration: auto.commit.enable={commits[:50]}")
    min_bytes = _number(sent.min_bytes, "fetch.min.bytes", -1, 10_000_000)
    wait_ms = _number(sent.wait_ms, "consumer.request.timeout.ms", 1_000, _WAIT_MOST_MS)
    resets = "error" if reset == "none" else reset
    return InstanceSettings(form, resets, commits == "true", min_bytes, max(0, wait_ms))


def _number(sent: str | int | None, name: str, default: int, most: int) -> int:
    if sent is None:
        return default
    try:
        found = int(sent)
    except ValueError:
        found = most + 1
    if not -1 <= found <= most:
        raise RestError(40001, f"Invalid consumer configuration. {name} is a number from -1 to {most}")
    return found
