"""`/v3/clusters/…/topics/…/configs`: settings of topics, one by one and several at once."""

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lakestream.access import Operation
from lakestream.errors import LakestreamError
from lakestream.http.identity import principal_of
from lakestream.http.rest.answers import Links, ResourceList, RestResource, answer, nothing
from lakestream.http.rest.endpoints import Endpoint
from lakestream.http.rest.errors import BAD_REQUEST, RestError
from lakestream.http.rest.requests import body_of
from lakestream.http.rest.v3.clusters import links_of
from lakestream.http.rest.v3.topics import TAG, TOPIC, TOPICS
from lakestream.metadata.topics.list import Topic
from lakestream.stream import Streams
from lakestream.stream.configs import Config, ConfigOperation, Source, Wanted, step_by_step, topic_configs

_SOURCES: Final = {
    Source.TOPIC: "DYNAMIC_TOPIC_CONFIG",
    Source.STATIC_BROKER: "STATIC_BROKER_CONFIG",
    Source.DEFAULT: "DEFAULT_CONFIG",
}
_OPERATIONS: Final = {
    "SET": ConfigOperation.SET,
    "DELETE": ConfigOperation.DELETE,
    "APPEND": ConfigOperation.APPEND,
    "SUBTRACT": ConfigOperation.SUBTRACT,
}


class SynonymData(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    source: str


class TopicConfigData(RestResource, frozen=True, kw_only=True):
    cluster_id: str
    topic_name: str
    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str
    synonyms: list[SynonymData]


class SentValue(msgspec.Struct, frozen=True):
    value: str | None = None


class SentChange(msgspec.Struct, frozen=True):
    name: str
    value: str | None = None
    operation: str | None = None


class SentChanges(msgspec.Struct, frozen=True):
    data: list[SentChange]
    validate_only: bool = False


class ConfigRoutes:
    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def endpoints(self) -> list[Endpoint]:
        listed, one = ResourceList[TopicConfigData], f"{TOPIC}/configs/{{name}}"
        return [
            Endpoint("GET", f"{TOPICS}/-/configs", self.rest_all_configs, "Settings of all topics", TAG, None, listed),
            Endpoint("GET", f"{TOPIC}/configs", self.rest_configs, "A topic's settings", TAG, None, listed),
            Endpoint(
                "POST",
                f"{TOPIC}/configs:alter",
                self.rest_alter,
                "Several changes, or none",
                TAG,
                SentChanges,
                None,
                204,
            ),
            Endpoint("GET", one, self.rest_config, "A setting", TAG, None, TopicConfigData),
            Endpoint("PUT", one, self.rest_set_config, "Set it", TAG, SentValue, None, 204),
            Endpoint("DELETE", one, self.rest_reset_config, "Back to its default", TAG, status=204),
        ]

    async def rest_all_configs(self, request: Request) -> Response:
        links, principal = links_of(request, self._streams), principal_of(request)
        names = [each.name for each in await self._streams.topics.list(principal)]
        found = await self._streams.find(principal, Operation.DESCRIBE_CONFIGS, names)
        told = [data for topic in found.values() if isinstance(topic, Topic) for data in self._data(links, topic)]
        return answer(links.listed("KafkaTopicConfigList", told, "topics", "-", "configs"))

    async def rest_configs(self, request: Request) -> Response:
        links, topic = links_of(request, self._streams), await self._topic(request)
        return answer(links.listed("KafkaTopicConfigList", self._data(links, topic), "topics", topic.name, "configs"))

    async def rest_config(self, request: Request) -> Response:
        links, topic = links_of(request, self._streams), await self._topic(request)
        name = request.path_params["name"]
        for each in self._data(links, topic):
            if each.name == name:
                return answer(each)
        raise RestError(404, f"Config {name[:100]} cannot be found for topic {topic.name}.")

    async def rest_set_config(self, request: Request) -> Response:
        links_of(request, self._streams)
        sent = await body_of(request, SentValue)
        if sent.value is None:
            raise RestError(BAD_REQUEST, "a setting needs a value")
        await self._change(request, [Wanted(request.path_params["name"], ConfigOperation.SET, sent.value)])
        return nothing()

    async def rest_reset_config(self, request: Request) -> Response:
        links_of(request, self._streams)
        await self._change(request, [Wanted(request.path_params["name"], ConfigOperation.DELETE, None)])
        return nothing()

    async def rest_alter(self, request: Request) -> Response:
        links_of(request, self._streams)
        sent = await body_of(request, SentChanges)
        names = [each.name for each in sent.data]
        if len(set(names)) < len(names):
            raise RestError(BAD_REQUEST, "a setting is named twice")
        operations = [(each.operation or "SET").upper() for each in sent.data]
        strange = next((each for each in operations if each not in _OPERATIONS), None)
        if strange is not None:
            raise RestError(BAD_REQUEST, f"there is no operation {strange[:50]}: it is one of {', '.join(_OPERATIONS)}")
        wanted = [
            Wanted(each.name, _OPERATIONS[operation], each.value)
            for each, operation in zip(sent.data, operations, strict=True)
        ]
        await self._change(request, wanted, dry_run=sent.validate_only)
        return nothing()

    async def _change(self, request: Request, wanted: list[Wanted], *, dry_run: bool = False) -> None:
        name = request.path_params["topic_name"]
        await self._streams.topics.alter(principal_of(request), name, step_by_step(wanted), dry_run=dry_run)

    async def _topic(self, request: Request) -> Topic:
        name = request.path_params["topic_name"]
        found = (await self._streams.find(principal_of(request), Operation.DESCRIBE_CONFIGS, [name]))[name]
        if isinstance(found, LakestreamError):
            raise found
        return found

    def _data(self, links: Links, topic: Topic) -> list[TopicConfigData]:
        configs = topic_configs(topic.configs, self._streams.topics.max_batch_bytes)
        return [_config(links, topic.name, each) for each in configs]


def _config(links: Links, topic: str, config: Config) -> TopicConfigData:
    return TopicConfigData(
        kind="KafkaTopicConfig",
        metadata=links.metadata("topics", topic, "configs", config.name),
        cluster_id=links.cluster_id,
        topic_name=topic,
        name=config.name,
        value=config.value,
        is_default=config.source != Source.TOPIC,
        is_read_only=config.read_only,
        is_sensitive=False,
        source=_SOURCES[config.source],
        synonyms=[SynonymData(each.name, each.value, _SOURCES[each.source]) for each in config.synonyms],
    )
