"""Which schema the data of a record is of: by id, by version, the newest of its subject, or one that comes with it."""

from collections import OrderedDict
from functools import partial
from typing import Final, NamedTuple

from lakestream.access import Principal
from lakestream.errors import InvalidSchema, UnknownSchema
from lakestream.http.rest.errors import NOT_JSON, NOT_SERIALIZED, RestError
from lakestream.http.rest.producing.sent import SentData
from lakestream.runtime import Runtime
from lakestream.schemas.registry.model import DEFAULT_CONTEXT, Registered, Schema, SchemaType, parse_subject
from lakestream.schemas.registry.reading import LATEST
from lakestream.schemas.registry.registry import SchemaRegistry
from lakestream.schemas.single.values import record_name
from lakestream.schemas.source import SchemaSource
from lakestream.table.shape import ValueSchema

TYPES: Final = {"AVRO": SchemaType.AVRO, "PROTOBUF": SchemaType.PROTOBUF, "JSONSCHEMA": SchemaType.JSON}
_STRATEGIES: Final = ("TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME")
_KEPT: Final = 256
_KEPT_MS: Final = 1_000
"""Schemas do not change; which is the newest, and who may use it, does."""


class DataSchema(NamedTuple):
    """As a report names it."""

    type: str
    subject: str
    version: int
    schema: ValueSchema


class _Kept(NamedTuple):
    schema: DataSchema
    until_ms: int


class ProduceSchemas:
    """`registry`: None where schemas are in somebody else's, who does not say who may what."""

    def __init__(self, registry: SchemaRegistry | None, source: SchemaSource, runtime: Runtime) -> None:
        self._registry = registry
        self._source = source
        self._runtime = runtime
        self._known: OrderedDict[tuple[object, ...], _Kept] = OrderedDict()

    async def find(self, principal: Principal, topic: str, sent: SentData, *, is_key: bool) -> DataSchema:
        """Raises `RestError`, `RegistryRefused`, `NotAuthorized`, `InvalidSchema`."""
        facts = (sent.type, sent.subject, sent.subject_name_strategy, sent.schema_id, sent.schema_version, sent.schema)
        key = (principal, topic, is_key, *facts)
        kept, now_ms = self._known.get(key), self._runtime.clock.now_ms()
        if kept is not None and now_ms < kept.until_ms:
            return kept.schema
        found = await self._look_up(principal, topic, sent, is_key=is_key)
        self._known[key] = _Kept(found, now_ms + _KEPT_MS)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return found

    async def _look_up(self, principal: Principal, topic: str, sent: SentData, *, is_key: bool) -> DataSchema:
        registry = self._registry
        _check(sent)
        if registry is None:
            raise RestError(NOT_SERIALIZED, "Error serializing message. Schemas are in another registry: send bytes")
        subject = sent.subject or f"{topic}-{'key' if is_key else 'value'}"
        if sent.schema is not None:
            found = await self._register(registry, principal, topic, sent, subject)
        elif sent.schema_id is not None:
            found = await self._by_id(registry, principal, topic, sent, subject)
        else:
            if sent.subject_name_strategy not in (None, "TOPIC_NAME"):
                raise RestError(NOT_JSON, f"Cannot use {sent.subject_name_strategy} without a schema or its id")
            number = LATEST if sent.schema_version is None else sent.schema_version
            found = await registry.version(principal, parse_subject(subject), number, deleted=False)
        kind = next(name for name, each in TYPES.items() if each is found.schema.type)
        if sent.type is not None and sent.type.upper() != kind:
            raise RestError(NOT_JSON, f"the schema with the id {found.id} is {kind}, not {sent.type}")
        schema = await self._source.by_id(found.id, str(found.subject))
        if schema is None or schema.trouble:
            raise InvalidSchema("it cannot be read" if schema is None else schema.trouble)
        return DataSchema(kind, str(found.subject), found.version, schema)

    async def _register(
        self, registry: SchemaRegistry, principal: Principal, topic: str, sent: SentData, subject: str
    ) -> Registered:
        schema = Schema(TYPES[(sent.type or "AVRO").upper()], sent.schema or "")
        if sent.subject is None and sent.subject_name_strategy not in (None, "TOPIC_NAME"):
            plain = ValueSchema(0, schema.text, format=schema.type.value)
            subject = await self._named(topic, sent, plain)
        return await registry.register(principal, parse_subject(subject), schema)

    async def _by_id(
        self, registry: SchemaRegistry, principal: Principal, topic: str, sent: SentData, subject: str
    ) -> Registered:
        asked, id = parse_subject(subject), sent.schema_id or 0
        schema = await registry.by_id(principal, asked.context, id)
        if sent.subject is None and sent.subject_name_strategy not in (None, "TOPIC_NAME"):
            value = await self._source.by_id(id, DEFAULT_CONTEXT)
            if value is not None:
                asked = parse_subject(await self._named(topic, sent, value))
        for user, number in await registry.users(principal, asked.context, id, deleted=False):
            if user == asked:
                return Registered(asked, number, id, schema)
        raise UnknownSchema(f"the schema with the id {id} is none of the subject {asked}", subject=str(asked))

    async def _named(self, topic: str, sent: SentData, schema: ValueSchema) -> str:
        name = await self._runtime.off_loop(partial(record_name, schema))
        if not name:
            raise RestError(NOT_JSON, f"Cannot use {sent.subject_name_strategy}: the schema's record has no name")
        return name if sent.subject_name_strategy == "RECORD_NAME" else f"{topic}-{name}"


def _check(sent: SentData) -> None:
    """Raises `RestError`."""
    if sent.type is not None and sent.type.upper() not in TYPES:
        raise RestError(NOT_JSON, f"Cannot deserialize value of type EmbeddedFormat from {sent.type[:50]!r}")
    if sum(each is not None for each in (sent.schema_id, sent.schema_version, sent.schema)) > 1:
        raise RestError(NOT_JSON, "Only one of 'schema_id', 'schema_version' or 'schema' can be used.")
    if sent.subject is not None and sent.subject_name_strategy is not None:
        raise RestError(NOT_JSON, "Only one of 'subject_name_strategy' or 'subject' can be used.")
    if sent.subject_name_strategy not in (None, *_STRATEGIES):
        raise RestError(NOT_JSON, f"subject_name_strategy is one of {', '.join(_STRATEGIES)}")
