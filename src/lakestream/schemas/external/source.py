"""A schema registry of the user's own as a source of schemas.

What an id means is kept for ever, what is the latest for seconds, which ids a subject has until somebody asks again.
Questions that are the same are asked once. A registry that does not answer is left alone for a moment: whoever asks
meanwhile is told at once.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from lakestream.errors import RegistryUnavailable
from lakestream.schemas.external.client import RegistryClient
from lakestream.schemas.source import SubjectVersion
from lakestream.table.shape import ValueSchema

T = TypeVar("T")

PAUSE_S: Final = 1.0
_KEPT_BYTES: Final = 64 * 1024 * 1024
_SUBJECTS_MOST: Final = 10_000
_VERSIONS_S: Final = 600.0
"""How long a version is believed to have the id that it had: only one that was deleted for good can come again."""
_REFERENCES_MOST: Final = 1_000
_AT_ONCE: Final = 8
_FORMATS: Final = frozenset({"AVRO", "JSON", "PROTOBUF"})


class _Reference(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int


class _Schema(msgspec.Struct, frozen=True):
    schema: str
    schemaType: str | None = None
    references: list[_Reference] | None = None
    id: int | None = None


class _Kept(NamedTuple):
    at_s: float
    ids: dict[int, int]
    """By version."""


class _OddSchema(Exception):
    """Its words say what is odd."""


class ExternalSource:
    """Implements `SchemaSource`."""

    def __init__(self, client: RegistryClient, latest_ms: int) -> None:
        self._client = client
        self._latest_s = latest_ms / 1000
        self._schemas: OrderedDict[tuple[str, int], ValueSchema] = OrderedDict()
        self._schema_bytes = 0
        self._latest: OrderedDict[str, tuple[float, ValueSchema | None]] = OrderedDict()
        self._versions: OrderedDict[str, _Kept] = OrderedDict()
        self._asking: dict[tuple[object, ...], asyncio.Task[Any]] = {}
        self._down_until_s = 0.0
        self._trouble = ""

    def close(self) -> None:
        self._client.close()

    async def by_id(self, schema_id: int, subject: str) -> ValueSchema | None:
        context = _context_of(subject)
        kept = self._schemas.get((context, schema_id))
        if kept is not None:
            self._schemas.move_to_end((context, schema_id))
            return kept
        return await self._once(("id", context, schema_id), lambda: self._read_id(context, schema_id, subject))

    async def latest(self, subject: str) -> ValueSchema | None:
        kept = self._latest.get(subject)
        if kept is not None and _now_s() < kept[0] + self._latest_s:
            return kept[1]
        return await self._once(("latest", subject), lambda: self._read_latest(subject))

    async def versions(self, subject: str) -> tuple[SubjectVersion, ...]:
        return await self._once(("versions", subject), lambda: self._read_versions(subject))

    async def _once(self, key: tuple[object, ...], ask: Callable[[], Awaitable[T]]) -> T:
        if key not in self._asking and self._down_until_s > _now_s():
            raise RegistryUnavailable(self._trouble)
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._asked(key, ask))
        answer: T = await asyncio.shield(task)
        return answer

    async def _asked(self, key: tuple[object, ...], ask: Callable[[], Awaitable[T]]) -> T:
        try:
            return await ask()
        except RegistryUnavailable as error:
            self._trouble, self._down_until_s = str(error), _now_s() + PAUSE_S
            raise
        finally:
            del self._asking[key]

    async def _read_id(self, context: str, schema_id: int, subject: str) -> ValueSchema | None:
        told = await self._client.get("schemas", "ids", str(schema_id), subject=subject)
        return None if told is None else await self._keep(context, schema_id, told)

    async def _read_latest(self, subject: str) -> ValueSchema | None:
        told = await self._client.get("subjects", subject, "versions", "latest")
        found = None
        if told is not None:
            schema_id, context = self._decoded(told).id, _context_of(subject)
            if schema_id is None:
                raise self._odd("names a version without its id")
            found = self._schemas.get((context, schema_id)) or await self._keep(context, schema_id, told)
        _put(self._latest, subject, (_now_s(), found))
        return found

    async def _read_versions(self, subject: str) -> tuple[SubjectVersion, ...]:
        numbers = self._numbers(await self._client.get("subjects", subject, "versions", deleted="true"))
        if not numbers:
            self._versions.pop(subject, None)
            return ()
        live = set(self._numbers(await self._client.get("subjects", subject, "versions")))
        kept = self._versions.get(subject)
        if kept is None or _now_s() > kept.at_s + _VERSIONS_S:
            kept = _Kept(_now_s(), {})
        ids = {number: schema_id for number, schema_id in kept.ids.items() if number in set(numbers)}
        new = [number for number in numbers if number not in ids]
        for start in range(0, len(new), _AT_ONCE):
            wanted = new[start : start + _AT_ONCE]
            told = await asyncio.gather(*(self._id_of(subject, number) for number in wanted))
            ids |= {number: found for number, found in zip(wanted, told, strict=True) if found is not None}
        _put(self._versions, subject, _Kept(kept.at_s, ids))
        return tuple(SubjectVersion(number, ids[number], number not in live) for number in numbers if number in ids)

    async def _id_of(self, subject: str, number: int) -> int | None:
        told = await self._client.get("subjects", subject, "versions", str(number), deleted="true")
        return None if told is None else self._decoded(told).id

    def _numbers(self, told: Any) -> list[int]:
        try:
            return sorted(msgspec.convert(told or [], list[int]))
        except msgspec.ValidationError:
            raise self._odd("lists versions that are no numbers") from None

    async def _keep(self, context: str, schema_id: int, told: Any) -> ValueSchema:
        schema = self._decoded(told)
        kind = schema.schemaType or "AVRO"
        if kind not in _FORMATS:
            return ValueSchema(schema_id, "", trouble=f"the registry says that it is in {kind[:40]}", format="AVRO")
        try:
            references: dict[str, str] = {}
            await self._collect(context, schema, references, ())
            found = ValueSchema(schema_id, schema.schema, tuple(references.items()), format=kind)
        except _OddSchema as error:
            # What it refers to may be there tomorrow.
            return ValueSchema(schema_id, "", trouble=f"what it refers to cannot be found: {error}", format=kind)
        self._schemas[context, schema_id] = found
        self._schema_bytes += _size_bytes(found)
        while self._schema_bytes > _KEPT_BYTES and len(self._schemas) > 1:
            self._schema_bytes -= _size_bytes(self._schemas.popitem(last=False)[1])
        return found

    async def _collect(self, context: str, schema: _Schema, found: dict[str, str], path: tuple[str, ...]) -> None:
        """Each after those that it needs."""
        for each in schema.references or ():
            if each.name in path:
                raise _OddSchema(f"its references go in a circle: {' → '.join((*path, each.name))}")
            if len(found) >= _REFERENCES_MOST:
                raise _OddSchema(f"it needs more than {_REFERENCES_MOST} other schemas")
            subject = each.subject if each.subject.startswith(":.") else f"{context}{each.subject}"
            told = await self._client.get("subjects", subject, "versions", str(each.version), deleted="true")
            if told is None:
                raise _OddSchema(f"version {each.version} of subject {subject} is not there")
            nested = self._decoded(told)
            if found.get(each.name) == nested.schema:
                continue
            await self._collect(_context_of(subject), nested, found, (*path, each.name))
            if found.setdefault(each.name, nested.schema) != nested.schema:
                raise _OddSchema(f"two different schemas are referred to as {each.name!r}")

    def _decoded(self, told: Any) -> _Schema:
        try:
            return msgspec.convert(told, _Schema)
        except msgspec.ValidationError:
            raise self._odd("answers something that is no schema") from None

    def _odd(self, told: str) -> RegistryUnavailable:
        return RegistryUnavailable(f"the schema registry {self._client.place} {told}")


def _context_of(subject: str) -> str:
    """What its neighbours' names begin with."""
    return subject[: subject.index(":", 1) + 1] if subject.startswith(":.") and ":" in subject[1:] else ""


def _size_bytes(schema: ValueSchema) -> int:
    return 200 + len(schema.text) + sum(len(name) + len(text) for name, text in schema.references)


def _put(kept: OrderedDict[str, Any], key: str, value: Any) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > _SUBJECTS_MOST:
        kept.popitem(last=False)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
