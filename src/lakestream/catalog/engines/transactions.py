"""Commits of outside engines to several tables at once: all of them or none (`metadata.moves` says how)."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.table.update import AssertCreate, TableRequirement, TableUpdate

from lakestream.catalog.embedded.commit import Staged
from lakestream.catalog.engines.tables import EngineTables, prepared
from lakestream.catalog.staging import Current
from lakestream.errors import LakestreamError, RequestError, Unavailable
from lakestream.metadata.names.pointers import Move, TableName


@dataclass(frozen=True, slots=True)
class TableChange:
    """One table's part of a commit."""

    name: TableName
    requirements: Sequence[TableRequirement]
    updates: Sequence[TableUpdate]
    shape_text: str | None = None
    """Of the stream's shape that the updates were made for, if they change it."""


async def commit_all(tables: EngineTables, changes: Sequence[TableChange]) -> None:
    """One attempt on the tables' present states. A table of a living topic keeps its rules. Raises as a commit of one
    table does; then nothing has changed, unless it is `Unavailable`: then the outcome is unknown, yet all or none."""
    _check(changes)
    commits = tables.commits
    if len(changes) == 1:
        [only] = changes
        if await tables.take_rows(await tables.loaded_for(only.name, only.updates), only.requirements, only.updates):
            return
    staged: list[tuple[Current, Staged]] = []
    try:
        for change in changes:
            current = await tables.loaded_for(change.name, change.updates)
            made = await commits.stage(
                current, prepared(current, change.requirements, change.updates, change.shape_text), outside=True
            )
            # A table that only has to be as required is moved to where it is, so that it cannot change meanwhile.
            staged.append((current, made or Staged(current.metadata, current.location, [])))
        moves = [Move(current.table_id, current.row.version, made.location) for current, made in staged]
        await commits.pointers.swing_all(commits.runtime.new_id(), moves, commits.runtime.clock.now_ms())
    except Unavailable:
        raise
    except LakestreamError:
        for _current, made in staged:
            await commits.run(lambda made=made: commits.files.delete(made.written, made.metadata.location))  # type: ignore[misc]
        raise
    for current, made in staged:
        await commits.clean(current, made, outside=True)


def _check(changes: Sequence[TableChange]) -> None:
    names = [change.name for change in changes]
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise RequestError(f"a commit names each table once: {', '.join(twice)} is in it more than once")
    for change in changes:
        if any(isinstance(requirement, AssertCreate) for requirement in change.requirements):
            raise RequestError(f"a table cannot be created by a commit to several tables: create {change.name} first")
