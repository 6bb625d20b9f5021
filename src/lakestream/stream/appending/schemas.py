"""The schemas that values and keys of topics may name, as this broker knows them, for topics with a schema validation.

An id is never given to another schema, so what is known stays known: a subject is asked about again only for an id that
it was not known to have, and every minute for those that left it for good. An id that it did not have a moment ago is
refused unasked; any other is asked for at once, so a schema that was just registered is taken. All who ask for one
subject wait for one question. Without the registry known ids go on, and batches with others are to come again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

from lakestream.errors import LakestreamError, RegistryUnavailable, UnknownSchema
from lakestream.metadata.topics.list import Topic
from lakestream.metadata.topics.option_list import (
    FULL,
    KEY_SUBJECT,
    KEY_VALIDATION,
    NO_VALIDATION,
    SCHEMA_VALIDATION,
    VALUE_SUBJECT,
)
from lakestream.metadata.topics.tables import key_subject, value_subject
from lakestream.objects import Buffer
from lakestream.records import BatchRules, SchemaIds
from lakestream.records.checking.blaming import check_key_ids
from lakestream.schemas.source import SchemaSource
from lakestream.stream.appending.checking import ReceivedBatch
from lakestream.table.shape import ValueSchema

MISSED_S: Final = 0.25
"""How long an id that its subject does not have is refused unasked."""
PAUSE_S: Final = 1.0
"""How long a registry that is down is left alone."""
REFRESH_S: Final = 60.0
WAIT_S: Final = 5.0
"""For the registry, before a producer is told to come again."""
_SUBJECTS_MOST: Final = 10_000
_MISSED_MOST: Final = 1_000


class ValueCheck(Protocol):
    """Raises `InvalidRecords` for a batch with values, or keys, that are not what their schemas say. For a thread."""

    def __call__(self, schemas: Mapping[int, ValueSchema], run: Buffer, *, of_keys: bool = False) -> None: ...


@dataclass(slots=True, eq=False)
class _Subject:
    """`ids` are those that values may name, with `schemas` where values are decoded. `wanted`: what is to be asked
    about. `framed`: the rules of its topics, with `ids`."""

    name: str
    is_full: bool
    ids: SchemaIds
    known: frozenset[int] = frozenset()
    schemas: Mapping[int, ValueSchema] = field(default_factory=dict)
    wanted: set[int] = field(default_factory=set)
    missed: OrderedDict[int, float] = field(default_factory=OrderedDict)
    framed: dict[BatchRules, BatchRules] = field(default_factory=dict)
    asking: "asyncio.Task[None] | None" = None
    asked_s: float | None = None
    down_until_s: float = 0.0
    trouble: str = ""


class TopicSchemas:
    """`load_check`: what decodes values, for topics that want it; None: there is nothing that could."""

    def __init__(self, source: SchemaSource, load_check: Callable[[], Awaitable[ValueCheck]] | None = None) -> None:
        self._source = source
        self._load_check = load_check
        self._check: ValueCheck | None = None
        self._subjects: OrderedDict[tuple[str, bool], _Subject] = OrderedDict()

    def received(self, topic: Topic, run: Buffer, rules: BatchRules) -> ReceivedBatch:
        """A batch with all that its topic asks of it."""
        subject, keys = self._subject_of(topic), self._key_subject_of(topic)
        if subject is None and keys is None:
            return ReceivedBatch(run, rules)
        received = ReceivedBatch(run, rules) if subject is None else self._with_values(subject, run, rules)
        return received if keys is None else self._with_keys(keys, received)

    def _with_values(self, subject: _Subject, run: Buffer, rules: BatchRules) -> ReceivedBatch:
        self._refresh(subject)
        framed = subject.framed.get(rules)
        if framed is None:
            framed = subject.framed[rules] = replace(rules, value_ids=subject.ids)
        if not subject.is_full or self._check is None:
            return ReceivedBatch(run, framed)
        return ReceivedBatch(run, framed, partial(self._check, subject.schemas))

    def _with_keys(self, subject: _Subject, received: ReceivedBatch) -> ReceivedBatch:
        """Keys are looked at in a thread, behind all else."""
        self._refresh(subject)
        checks: list[Callable[[Buffer], None]] = [] if received.check is None else [received.check]
        checks.append(partial(check_key_ids, known=subject.ids))
        if subject.is_full and self._check is not None:
            checks.append(partial(self._check, subject.schemas, of_keys=True))
        return received._replace(check=partial(_check_each, checks))

    def _refresh(self, subject: _Subject) -> None:
        if subject.asked_s is not None and _now_s() > max(subject.asked_s + REFRESH_S, subject.down_until_s):
            self._ask(subject)

    async def look_again(self, topic: Topic, refused: UnknownSchema) -> bool:
        """Whether the subject was asked about since the batch was checked, so that it is to be checked once more.
        Raises `RegistryUnavailable`."""
        asked = [each for each in (self._subject_of(topic), self._key_subject_of(topic)) if each is not None]
        looked = [await self._look_for(each, refused.ids) for each in asked if each.name == refused.subject]
        return any(looked)

    async def _look_for(self, subject: _Subject, ids: frozenset[int]) -> bool:
        if all(subject.missed.get(each, 0.0) > _now_s() for each in ids):
            return False
        subject.wanted |= ids
        if subject.asking is not None:
            # It may have begun before one of the ids was registered.
            await asyncio.wait([subject.asking])
        if not ids <= subject.known:
            if subject.down_until_s <= _now_s():
                asking = self._ask(subject)
                await asyncio.wait([asking])
                asking.result()
            if subject.down_until_s > _now_s():
                raise RegistryUnavailable(subject.trouble)
        for each in sorted(ids - subject.known):
            subject.missed[each] = _now_s() + MISSED_S
            subject.missed.move_to_end(each)
            if len(subject.missed) > _MISSED_MOST:
                subject.missed.popitem(last=False)
        return True

    def _subject_of(self, topic: Topic) -> _Subject | None:
        """None: values are not validated."""
        wanted = topic.configs.get(SCHEMA_VALIDATION, NO_VALIDATION).strip()
        if wanted == NO_VALIDATION:
            return None
        return self._subject(value_subject(topic.name, topic.configs.get(VALUE_SUBJECT, "").strip()), wanted)

    def _key_subject_of(self, topic: Topic) -> _Subject | None:
        wanted = topic.configs.get(KEY_VALIDATION, NO_VALIDATION).strip()
        if wanted == NO_VALIDATION:
            return None
        return self._subject(key_subject(topic.name, topic.configs.get(KEY_SUBJECT, "").strip()), wanted)

    def _subject(self, name: str, wanted: str) -> _Subject:
        key = name, wanted == FULL
        found = self._subjects.get(key)
        if found is None:
            found = self._subjects[key] = _Subject(*key, SchemaIds.of(key[0], ()))
            if len(self._subjects) > _SUBJECTS_MOST:
                self._subjects.popitem(last=False)
        return found

    def _ask(self, subject: _Subject) -> "asyncio.Task[None]":
        """The question that is under way, or else another."""
        if subject.asking is None:
            subject.asking = asyncio.ensure_future(self._read(subject))
        return subject.asking

    async def _read(self, subject: _Subject) -> None:
        wanted, subject.wanted = subject.wanted, set()
        try:
            if subject.is_full:
                await self._prepare()
            async with asyncio.timeout(WAIT_S):
                found = frozenset(each.schema_id for each in await self._source.versions(subject.name))
                if subject.is_full:
                    found = await self._load(subject, found, wanted)
        except (LakestreamError, TimeoutError) as error:
            subject.trouble = f"{str(error) or 'the schema registry does not answer'}: send the records again"
            subject.down_until_s = _now_s() + PAUSE_S
        else:
            subject.asked_s, subject.down_until_s = _now_s(), 0.0
            if found != subject.known:
                subject.known, subject.ids = found, SchemaIds.of(subject.name, found)
                subject.framed = {}
        finally:
            subject.asking = None

    async def _prepare(self) -> None:
        if self._check is None and self._load_check is not None:
            self._check = await self._load_check()
        if self._check is None:
            raise RegistryUnavailable("this broker cannot decode values, as the topic wants it")

    async def _load(self, subject: _Subject, found: frozenset[int], wanted: set[int]) -> frozenset[int]:
        """Those of the subject whose schemas are at hand: what it had already, and what is wanted now."""
        schemas = {key: schema for key, schema in subject.schemas.items() if key in found}
        for each in sorted((wanted & found) - schemas.keys()):
            schema = await self._source.by_id(each, subject.name)
            if schema is not None:
                schemas[each] = schema
        subject.schemas = schemas
        return frozenset(schemas)


def _check_each(checks: Sequence[Callable[[Buffer], None]], run: Buffer) -> None:
    for check in checks:
        check(run)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
