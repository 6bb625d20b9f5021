"""What a bucket tells of its tables and its WAL, found by listing: the present metadata of each table and view, and for
each partition the sections of WAL objects and what became of them."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from lakestream.bucket.evidence import Fate, FoundSection
from lakestream.catalog.files import version_of
from lakestream.catalog.sealed import checksum_in
from lakestream.errors import CorruptObject, ObjectMissing
from lakestream.frontier.moving.receipts import is_of_table
from lakestream.model import StreamPartition
from lakestream.objects import ObjectInfo, ObjectStore
from lakestream.records import crc32c
from lakestream.table.schema import FRONTIER_PROPERTY, TOPIC_ID_PROPERTY, TOPIC_PROPERTY, parse_frontier
from lakestream.wal import WAL_PREFIX, Footer, Placed, is_foreign, parse_key, read_footer

_TABLES: Final = ("tables/", "warehouse/")
_METADATA: Final = ".metadata.json"
_CONCURRENT: Final = 32
_TOLD_EVERY: Final = 1000

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class FoundTable:
    """`topic_id` and `topic`: of the stream that wrote it, if one did."""

    key: str
    table_uuid: str
    frontier: tuple[int, ...] = ()
    topic_id: UUID | None = None
    topic: str = ""
    updated_ms: int = 0


@dataclass(slots=True)
class FoundWal:
    """`unreadable`: what is wrong with objects that tell nothing."""

    sections: dict[StreamPartition, list[FoundSection]] = field(default_factory=lambda: defaultdict(list))
    fates: dict[StreamPartition, dict[str, Fate]] = field(default_factory=lambda: defaultdict(dict))
    generation: int = 0
    objects: int = 0
    unreadable: list[str] = field(default_factory=list)


async def find_tables(objects: ObjectStore, tell: Tell) -> dict[str, FoundTable]:
    """The newest metadata in each folder that has some, by the folder's key. Metadata that was written for a commit
    which nobody knows the outcome of counts as committed if what it names is there."""
    folders: dict[str, list[str]] = defaultdict(list)
    for prefix in _TABLES:
        async for info in objects.list(prefix):
            if info.key.endswith(_METADATA):
                folders[info.key.rpartition("/")[0]].append(info.key)
    tell(f"{len(folders)} tables and views are in the bucket")
    found = {}
    for folder, keys in folders.items():
        newest = await _newest(objects, keys)
        if newest is not None:
            found[folder] = newest
    return found


async def _newest(objects: ObjectStore, keys: Iterable[str]) -> FoundTable | None:
    """Of several of one version the one whose stream is farthest: what it has may be nowhere else."""
    versions: dict[int, list[str]] = defaultdict(list)
    for key in keys:
        versions[version_of(key)].append(key)
    for version in sorted(versions, reverse=True):
        read = [await _read_table(objects, key) for key in sorted(versions[version])]
        whole = [each for each in read if each is not None]
        if whole:
            return max(whole, key=lambda each: (each.frontier, each.updated_ms, each.key))
    return None


async def _read_table(objects: ObjectStore, key: str) -> FoundTable | None:
    """None: it is damaged, or names what is not there."""
    try:
        data = await objects.get(key)
        if checksum_in(key) not in (None, crc32c(data)):
            return None
        tree: dict[str, Any] = json.loads(data)
        for snapshot in tree.get("snapshots") or ():
            if snapshot["snapshot-id"] == tree.get("current-snapshot-id"):
                listed = str(snapshot["manifest-list"])
                folder = key.split("/", 2)[0]
                # Its address may be that of before the bucket was moved.
                await objects.get_tail(f"{folder}/{listed.partition(f'/{folder}/')[2]}", 1)
        properties = tree.get("properties") or {}
        topic_id = properties.get(TOPIC_ID_PROPERTY)
        return FoundTable(
            key,
            str(tree.get("table-uuid") or tree.get("view-uuid")),
            parse_frontier(properties.get(FRONTIER_PROPERTY, "")) if topic_id else (),
            UUID(topic_id) if topic_id else None,
            str(properties.get(TOPIC_PROPERTY, "")),
            int(tree.get("last-updated-ms") or 0),
        )
    except (ObjectMissing, ValueError, KeyError, TypeError, AttributeError):
        return None


async def find_wal(objects: ObjectStore, clusters: Iterable[str], tell: Tell) -> FoundWal:
    """Of these clusters only: another may share the bucket. `objects`: the bucket, or all stores of the WAL at once."""
    found, ours = FoundWal(), frozenset(clusters)
    infos = []
    async for info in objects.list(WAL_PREFIX):
        try:
            name = parse_key(info.key)
        except ValueError as error:
            found.unreadable.append(str(error))
            continue
        if not is_foreign(name.session, ours):
            infos.append(info)
            found.generation = max(found.generation, name.generation)
    footers: list[tuple[ObjectInfo, Footer]] = []
    for start in range(0, len(infos), _CONCURRENT):
        part = infos[start : start + _CONCURRENT]
        for info, footer in zip(part, await asyncio.gather(*(_footer(objects, each) for each in part)), strict=True):
            if isinstance(footer, Footer):
                footers.append((info, footer))
            elif footer:
                found.unreadable.append(footer)
        if start and start % _TOLD_EVERY < _CONCURRENT:
            tell(f"{start} of {len(infos)} WAL objects are read")
    found.objects = len(infos)
    latest: dict[str, int] = {}
    given_up: set[str] = set()
    for info, footer in sorted(footers, key=lambda each: (each[1].session, each[1].flush)):
        # By the bucket's clock, but a later flush of a session never before an earlier one.
        time_ms = latest[footer.session] = max(info.modified_ms, latest.get(footer.session, 0))
        for span in footer.spans:
            section = FoundSection(info.key, span, (time_ms, footer.session, footer.flush), footer.generation)
            found.sections[span.partition].append(section)
        _add_fates(found, footer)
        given_up |= {receipt.object_key for receipt in footer.receipts if not receipt.sections}
    for partition, sections in found.sections.items():
        fates = found.fates[partition]
        for section in sections:
            if section.object_key in given_up:
                known = fates.get(section.object_key)
                fates[section.object_key] = Fate(() if known is None else known.placed, whole=True)
    return found


def _add_fates(found: FoundWal, footer: Footer) -> None:
    whole = not is_of_table(footer.session)
    for receipt in footer.receipts:
        for section in receipt.sections:
            known = found.fates[section.partition].get(receipt.object_key, Fate((), whole=False))
            placed: dict[int, Placed] = {each.position: each for each in (*known.placed, *section.placed)}
            fate = Fate(tuple(placed[position] for position in sorted(placed)), known.whole or whole)
            found.fates[section.partition][receipt.object_key] = fate


async def _footer(objects: ObjectStore, info: ObjectInfo) -> Footer | str:
    try:
        return await read_footer(objects, info.key)
    except CorruptObject as error:
        return str(error)
    except ObjectMissing:
        return ""
