"""Changes of a derived table as one commit: files are stored first, under names that say on which version of the table
they can be committed, then the table has them and the frontier that they reach, or nothing."""

from collections.abc import Sequence

from lakestream.catalog.derived.port import DerivedFile, DerivedTables, DerivedView
from lakestream.catalog.files import version_of
from lakestream.errors import Conflict, RetryableError
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.naming import nth_id
from lakestream.table.deriving.building import Built
from lakestream.table.deriving.naming import DerivedName, derived_key
from lakestream.table.deriving.state import Changed
from lakestream.table.parquet.seal import sealed_name


async def commit_changed(
    lake: Lake, tables: DerivedTables, derived: DerivedView, changed: Changed, frontier: tuple[int, ...]
) -> DerivedView:
    """One attempt. Raises `Conflict` if the table is another by now: its files are gone again. When the outcome is
    unknown (`Unavailable`) they stay."""
    files = await _store(lake, derived, changed.built)
    try:
        return await tables.commit(derived, add=files, remove=changed.removed, frontier=frontier)
    except Conflict:
        await _discard(lake, files)
        raise


async def _store(lake: Lake, derived: DerivedView, built: Sequence[Built]) -> list[DerivedFile]:
    view, attempt_id = derived.view, lake.runtime.new_id()
    last_version = version_of(view.metadata_location)
    prefix = view.location.removeprefix(lake.objects.url + "/")
    files = []
    for number, each in enumerate(built):
        key = derived_key(DerivedName(last_version, each.bucket, each.is_deletes), nth_id(attempt_id, number))
        key = sealed_name(key, each.footer_checksum)
        await lake.objects.put(f"{prefix}/{key}", [each.data])
        path = f"{view.location}/{key}"
        files.append(DerivedFile(path, each.bucket, each.is_deletes, each.record_count, each.size_bytes, each.metrics))
    return files


async def _discard(lake: Lake, files: Sequence[DerivedFile]) -> None:
    """What cannot be reached stays behind as an orphan."""
    if files:
        try:
            await lake.objects.delete([file.path.removeprefix(lake.objects.url + "/") for file in files])
        except RetryableError:
            return
