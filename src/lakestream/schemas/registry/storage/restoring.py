"""The registry of a metadata store that was lost: what was saved of it, brought up to date from the bucket.

Of each row that changes the newest counts, saved or in the bucket. Schemas that no subject has any more are gone; their
ids are not given again, because their objects are there. Indexes are made anew.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from lakestream.metadata import codec
from lakestream.metadata.store import Address, Entry, Store, Transaction
from lakestream.objects import ObjectStore
from lakestream.schemas.registry.model import Schema, Subject
from lakestream.schemas.registry.registering import FIRST_ID
from lakestream.schemas.registry.storage.draft import KeptRow
from lakestream.schemas.registry.storage.kept import kept_rows, kept_schemas, read_kept_schema
from lakestream.schemas.registry.storage.rows import (
    LAST,
    SHARD,
    ContextRow,
    SchemaId,
    SubjectRow,
    encoded,
    ids_key,
    indexes,
    schema_key,
    subject_of,
)

_PUTS_MOST: Final = 200
_INDEXES: Final = ("content/", "guid/", "use/", "referrer/")
_KINDS: Final[dict[str, type[KeptRow]]] = {"subject/": SubjectRow, "context/": ContextRow}


class RestoredSchemas(msgspec.Struct, frozen=True):
    """`notes`: what could not be known, as sentences."""

    subjects: int
    notes: list[str]


async def restore_registry(store: Store, objects: ObjectStore, clusters: Sequence[str]) -> RestoredSchemas:
    """`clusters`: the cluster's id, and those that it had before. The store has the saved rows, and nobody uses it."""
    await _take_newer_rows(store, objects, clusters)
    highest: dict[str, int] = defaultdict(int)
    for cluster in clusters:
        async for place in kept_schemas(objects, cluster):
            highest[place.context] = max(highest[place.context], place.id)
    subjects = {
        subject_of(entry.key): codec.decode(entry.value, SubjectRow, Address(SHARD, entry.key))
        for entry in await _rows(store, "subject/")
    }
    notes: list[str] = []
    puts: dict[str, bytes] = {}
    schemas = await _schemas(store, objects, clusters, subjects, puts, notes)
    for subject, row in subjects.items():
        for version in row.versions:
            place = SchemaId(subject.context, version.id)
            highest[place.context] = max(highest[place.context], place.id)
            if place in schemas:
                found = indexes(subject, version.id, schemas[place], is_live=not version.is_deleted)
                puts |= {key: encoded(key, value) for key, value in found}
    for context, id in highest.items():
        [entry] = await store.get([Address(SHARD, ids_key(context))])
        present = FIRST_ID if entry is None else codec.decode(entry.value, int, Address(SHARD, ids_key(context)))
        puts[ids_key(context)] = encoded(ids_key(context), max(present, id + 1))
    await store.transact([Transaction(SHARD, {}, {}, delete_ranges=[(each, each + LAST) for each in _INDEXES])])
    items = list(puts.items())
    for start in range(0, len(items), _PUTS_MOST):
        await store.transact([Transaction(SHARD, {}, dict(items[start : start + _PUTS_MOST]))])
    return RestoredSchemas(sum(bool(row.live) for row in subjects.values()), notes)


async def _take_newer_rows(store: Store, objects: ObjectStore, clusters: Iterable[str]) -> None:
    for cluster in clusters:
        async for row in kept_rows(objects, cluster):
            kind = next((each for prefix, each in _KINDS.items() if row.key.startswith(prefix)), None)
            address = Address(SHARD, row.key)
            if kind is None:
                continue
            [entry] = await store.get([address])
            known = -1 if entry is None else codec.decode(entry.value, kind, address).revision
            if codec.decode(row.value, kind, address).revision > known:
                await store.transact([Transaction(SHARD, {}, {row.key: row.value})])


async def _schemas(
    store: Store,
    objects: ObjectStore,
    clusters: Sequence[str],
    subjects: Mapping[Subject, SubjectRow],
    puts: dict[str, bytes],
    notes: list[str],
) -> dict[SchemaId, Schema]:
    """Those that subjects have; others leave the store."""
    stored = {entry.key: entry for entry in await _rows(store, "schema/")}
    found: dict[SchemaId, Schema] = {}
    for subject, row in subjects.items():
        for version in row.versions:
            place = SchemaId(subject.context, version.id)
            key = schema_key(place.context, place.id)
            if place in found:
                continue
            if key in stored:
                found[place] = codec.decode(stored[key].value, Schema, Address(SHARD, key))
                continue
            schema = await read_kept_schema(objects, clusters, place)
            if schema is None:
                notes.append(f"schema {place.id}, version {version.number} of subject {subject}, is not in the bucket")
            else:
                found[place] = schema
                puts[key] = encoded(key, schema)
    wanted = {schema_key(place.context, place.id) for place in found}
    gone = [key for key in stored if key not in wanted]
    if gone:
        await store.transact([Transaction(SHARD, {}, {}, deletes=gone)])
    return found


async def _rows(store: Store, prefix: str) -> list[Entry]:
    return await store.range(SHARD, prefix, prefix + LAST)
