"""Making the table of a topic in an external catalog and letting it go again, as chains of steps that any process may
resume."""

import logging
from collections.abc import Callable
from typing import NoReturn
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from lakestream.catalog import binding
from lakestream.catalog.external.client import StoredTable
from lakestream.catalog.external.commit import NEVER_MADE, ExternalCommits
from lakestream.catalog.external.empty import write_first
from lakestream.catalog.external.rules import is_marked, is_of
from lakestream.errors import Conflict, RequestError, TableExists, Unavailable
from lakestream.metadata.names.pointers import Pointer, PointerRow
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.topics.tables import detached_name
from lakestream.table.schema import CLUSTER_PROPERTY, FRONTIER_PROPERTY

_log = logging.getLogger(__name__)


async def bind(commits: ExternalCommits, topic_id: UUID, wanted: TableName, first: Callable[[], TableMetadata]) -> None:
    """Name first, then the table, then the note that it was made: from then on one that is missing was taken away
    by somebody, and is not made again."""
    row, name = await commits.pointers.get(topic_id), await commits.pointers.name_of(topic_id)
    if row is not None and row.pointer.bound and name is not None and row.pointer.metadata_location != NEVER_MADE:
        return
    await commits.cluster()
    found = await commits.ask(lambda: commits.client.load(name or wanted))
    if found is not None and not is_of(topic_id, found.metadata):
        await _refuse(commits, topic_id, row, name or wanted)
    if found is not None:
        commits.check_present(topic_id, name or wanted, found)

    async def make_pointer() -> PointerRow:
        return await commits.pointers.add(topic_id, Pointer(NEVER_MADE, bound=True))

    await binding.bind(commits.pointers, topic_id, name or wanted, make_pointer)
    row, name = await commits.pointers.get(topic_id), await commits.pointers.name_of(topic_id)
    if row is None or name is None:
        raise Conflict(f"the table of topic {topic_id} was dropped while it was made")
    found = found or await _register(commits, topic_id, row, name, first())
    if row.pointer.metadata_location == NEVER_MADE:
        await _note_made(commits, topic_id, row, name, found)


async def _register(
    commits: ExternalCommits, topic_id: UUID, row: PointerRow, name: TableName, metadata: TableMetadata
) -> StoredTable:
    mark = {CLUSTER_PROPERTY: await commits.cluster()}
    marked = metadata.model_copy(update={"properties": {**metadata.properties, **mark}})
    plan = commits.stager.plan(commits.said(topic_id, marked.properties[FRONTIER_PROPERTY]))
    written = await commits.stager.run(lambda: write_first(commits.stager, marked, plan))
    location = written[-1]
    try:
        return await commits.ask(lambda: commits.client.register(name, location))
    except (TableExists, Unavailable) as error:
        # Another worker may have been faster, which catalogs word in many ways.
        found = await commits.ask(lambda: commits.client.load(name))
        if found is None or (isinstance(error, Unavailable) and not is_of(topic_id, found.metadata)):
            raise
        if found.location != location:
            await commits.stager.discard(written, marked.location)
        if not is_of(topic_id, found.metadata):
            await _refuse(commits, topic_id, row, name)
        return found


async def _refuse(commits: ExternalCommits, topic_id: UUID, row: PointerRow | None, name: TableName) -> NoReturn:
    """The name is somebody else's. Raises `Conflict`; a topic that never had a table gets another name then."""
    if row is not None and row.pointer == Pointer(NEVER_MADE, bound=True):
        await commits.pointers.drop(topic_id)
    raise Conflict(f"table {name} of catalog {commits.place} is not topic {topic_id}'s: rename or drop it first")


async def _note_made(
    commits: ExternalCommits, topic_id: UUID, row: PointerRow, name: TableName, found: StoredTable
) -> None:
    try:
        await commits.pointers.swing(topic_id, row.version, Pointer(found.location, bound=True))
    except Conflict:
        latest = await commits.pointers.get(topic_id)
        if latest is None or not latest.pointer.bound:
            await _free_name(commits, topic_id, name)
            raise


async def detach(commits: ExternalCommits, topic_id: UUID) -> str | None:
    """The pointer says first that the topic is no more; then the catalog's table and the note get their name."""
    while True:
        row, name = await commits.pointers.get(topic_id), await commits.pointers.name_of(topic_id)
        if row is None or name is None:
            return await binding.detach(commits.pointers, topic_id)
        if row.pointer.bound:
            await commits.pointers.mark_leaving(topic_id)
            try:
                await commits.pointers.swing(topic_id, row.version, Pointer(row.pointer.metadata_location))
            except Conflict:
                continue
        await _free_name(commits, topic_id, name)
        return await binding.detach(commits.pointers, topic_id)


async def _free_name(commits: ExternalCommits, topic_id: UUID, name: TableName) -> None:
    """Idempotent. A catalog that does not rename keeps the table under its name; what another cluster has taken
    over keeps it too."""
    kept = TableName(name.namespace, detached_name(name.name, topic_id))
    found = None if kept == name else await commits.ask(lambda: commits.client.load(name))
    if found is None or not is_of(topic_id, found.metadata) or not is_marked(await commits.cluster(), found.metadata):
        return
    try:
        await commits.ask(lambda: commits.client.rename(name, kept))
    except RequestError as error:
        _log.warning("the table of a deleted topic stays as %s: %s", name, error)
