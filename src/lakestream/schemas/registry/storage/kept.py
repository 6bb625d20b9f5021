"""What the bucket keeps of the registry, so that a lost metadata store loses no schema.

    lakestream/schemas/<cluster>/ids/<context>/<id>.json     every schema that ever got an id, for ever
    lakestream/schemas/<cluster>/rows/<hash>/<revision>      the newest of each row that changes

A schema's object is there before its id is: whoever sees the id can read the schema without the registry, and
the id is never given again. A row's object follows the row, before whoever changed it is answered.
"""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec

from lakestream.errors import Conflict, CorruptObject, ObjectMissing, StorageError
from lakestream.metadata.counters import cluster_id
from lakestream.metadata.store import Store
from lakestream.objects import ObjectStore
from lakestream.runtime import Runtime
from lakestream.schemas.registry.model import DEFAULT_CONTEXT, Reference, Schema, SchemaType
from lakestream.schemas.registry.storage.draft import KeptRow
from lakestream.schemas.registry.storage.rows import SchemaId, encoded

SCHEMAS: Final = "lakestream/schemas/"
FORMAT: Final = 1


class _SchemaObject(msgspec.Struct, frozen=True):
    format: int
    context: str
    id: int
    schemaType: str
    schema: str
    references: list[dict[str, Any]]
    metadata: dict[str, Any] | None
    ruleSet: dict[str, Any] | None
    digest: str


class _RowObject(msgspec.Struct, frozen=True):
    format: int
    key: str
    revision: int
    value: str


class SavedRow(msgspec.Struct, frozen=True):
    """`value`: as it is stored."""

    key: str
    revision: int
    value: bytes


class KeptSchemas:
    def __init__(self, store: Store, objects: ObjectStore, runtime: Runtime) -> None:
        self._store = store
        self._objects = objects
        self._runtime = runtime
        self._cluster = ""

    async def keep_schema(self, place: SchemaId, schema: Schema) -> None:
        """Raises `Conflict` if another schema had that id once."""
        key = _schema_key(await self._prefix(), place)
        try:
            await self._objects.put(key, [encode_schema(place, schema)])
        except Conflict:
            if decode_schema(await self._objects.get(key), key)[1].digest() != schema.digest():
                raise

    async def keep_row(self, key: str, row: KeptRow) -> None:
        """Older ones go; one that comes late and is older stays, and is never read."""
        folder = f"{await self._prefix()}rows/{hashlib.sha256(key.encode()).hexdigest()}"
        data = _RowObject(FORMAT, key, row.revision, b64encode(encoded(key, row)).decode())
        name = f"{folder}/{row.revision:012d}"
        await self._objects.put(name, [msgspec.json.encode(data)], overwrite=True)
        older = [info.key async for info in self._objects.list(folder) if info.key < name]
        await self._objects.delete(older)

    async def _prefix(self) -> str:
        if not self._cluster:
            self._cluster = await cluster_id(self._store, self._runtime)
        return f"{SCHEMAS}{self._cluster}/"


async def read_kept_schema(objects: ObjectStore, clusters: Sequence[str], place: SchemaId) -> Schema | None:
    """Also of a schema that was deleted for good. `clusters`: the cluster's id, and those that it had before."""
    for cluster in clusters:
        key = _schema_key(f"{SCHEMAS}{cluster}/", place)
        try:
            return decode_schema(await objects.get(key), key)[1]
        except ObjectMissing:
            continue
    return None


async def kept_schemas(objects: ObjectStore, cluster: str) -> AsyncIterator[SchemaId]:
    prefix = f"{SCHEMAS}{cluster}/ids"
    async for info in objects.list(prefix):
        folder, _, name = info.key.removeprefix(f"{prefix}/").rpartition("/")
        if name.removesuffix(".json").isdigit():
            yield SchemaId(_context_of(folder), int(name.removesuffix(".json")))


async def kept_rows(objects: ObjectStore, cluster: str) -> AsyncIterator[SavedRow]:
    """The newest of each. Raises `CorruptObject`."""
    newest: dict[str, str] = {}
    async for info in objects.list(f"{SCHEMAS}{cluster}/rows"):
        folder = info.key.rpartition("/")[0]
        newest[folder] = max(info.key, newest.get(folder, ""))
    for key in newest.values():
        found = _decode(await objects.get(key), _RowObject, key)
        yield SavedRow(found.key, found.revision, b64decode(found.value))


def encode_schema(place: SchemaId, schema: Schema) -> bytes:
    references = [{"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references]
    tree = _SchemaObject(
        *(FORMAT, place.context, place.id, schema.type.value, schema.text, references),
        *(schema.metadata, schema.rules, schema.digest()),
    )
    return msgspec.json.encode(tree)


def decode_schema(data: bytes, name: str) -> tuple[SchemaId, Schema]:
    """Raises `CorruptObject`."""
    found = _decode(data, _SchemaObject, name)
    try:
        references = tuple(Reference(**each) for each in found.references)
        schema = Schema(SchemaType(found.schemaType), found.schema, references, found.metadata, found.ruleSet)
    except (TypeError, ValueError) as error:
        raise CorruptObject(f"{name} does not decode: {error}") from error
    if schema.digest() != found.digest:
        raise CorruptObject(f"{name} is damaged: its digest does not hold")
    return SchemaId(found.context, found.id), schema


def _decode(data: bytes, kind: type[Any], name: str) -> Any:
    try:
        form = msgspec.json.decode(data)["format"]
        if form != FORMAT:
            raise StorageError(f"{name} has format {form}: use the version of lakestream that wrote it")
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, ValueError, KeyError, TypeError) as error:
        raise CorruptObject(f"{name} does not decode: {error}") from error


def _schema_key(prefix: str, place: SchemaId) -> str:
    return f"{prefix}ids/{_folder_of(place.context)}/{place.id:010d}.json"


def _folder_of(context: str) -> str:
    """No folder's name is just a dot."""
    return "default" if context == DEFAULT_CONTEXT else f"context{context}"


def _context_of(folder: str) -> str:
    return DEFAULT_CONTEXT if folder == "default" else folder.removeprefix("context")
