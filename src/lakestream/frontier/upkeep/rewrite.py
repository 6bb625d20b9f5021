"""Files of a table in the place of others, by one commit: the primitive of merges and folds.

The outputs hold rows that are in the table already, so what guards them is not the frontier. A commit holds only on
exactly one view in which every input is live and no row of them was deleted since it was read; otherwise the rewrite
is given up, and nothing happened. The names of the outputs carry the last version of the table on which that is tried:
beyond it whoever collects orphans knows that it never will be.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from lakestream.catalog.files import version_of
from lakestream.errors import Conflict
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.advance import discard
from lakestream.frontier.moving.tiles.naming import nth_id
from lakestream.frontier.upkeep.rewritten import RewriteBound, rewritten_key
from lakestream.model import DataFile, WrittenFile
from lakestream.table.parquet.seal import sealed_name
from lakestream.table.rewriting.rewriter import Rewritten
from lakestream.table.view import View

_UNCOUNTED: Final = 9_999_999_999
"""The last version if the catalog does not count: such files are never judged."""


@dataclass(frozen=True, slots=True)
class Swapped:
    """What a rewrite did to the table. `added`: the paths of the outputs."""

    view: View
    added: frozenset[str]
    files_before: int
    files_after: int
    rows_before: int
    rows_after: int


def is_inside(lake: Lake, view: View) -> bool:
    """Whether the table lies in the bucket: elsewhere its files are not ours to write."""
    return view.location.startswith(lake.objects.url + "/")


async def put_in_place(
    lake: Lake,
    view: View,
    inputs: Sequence[DataFile],
    rewritten: Sequence[Rewritten],
    *,
    folded_ms: int | None = None,
    holds: Callable[[View], bool] = lambda view: True,
) -> Swapped | None:
    """Stores the outputs and commits them instead of the inputs, which were read with the deletes of `view`. None: the
    table has changed where it matters (`holds` may say so, too), and stays as it is. When the outcome is unknown
    (`Unavailable`) the outputs stay."""
    version = version_of(view.metadata_location)
    last_version = _UNCOUNTED if version < 0 else version + lake.settings.max_commit_attempts
    bound = RewriteBound(last_version, folded_ms)
    outputs = await store_outputs(lake, view, rewritten, bound)
    begun = view
    for _ in range(lake.settings.max_commit_attempts):
        if version_of(view.metadata_location) > last_version or not still_holds(begun, view, inputs) or not holds(view):
            break
        try:
            done = await lake.catalog.commit(view, add=outputs, remove=inputs, frontier=view.frontier)
        except Conflict:
            view = await lake.catalog.load(view.topic_id)
        else:
            return Swapped(
                done,
                frozenset(file.path for file in outputs),
                len(inputs),
                len(outputs),
                sum(file.record_count for file in inputs),
                sum(file.record_count for file in outputs),
            )
    await discard(lake, outputs)
    return None


async def store_outputs(
    lake: Lake, view: View, rewritten: Sequence[Rewritten], bound: RewriteBound
) -> list[WrittenFile]:
    """Under names that carry the bound."""
    attempt_id = lake.runtime.new_id()
    prefix = view.location.removeprefix(lake.objects.url + "/")
    written = []
    for number, file in enumerate(rewritten):
        stats = file.stats
        key = rewritten_key(bound, stats.partition_min, stats.offset_min, nth_id(attempt_id, number))
        key = sealed_name(key, stats.footer_checksum)
        await lake.objects.put(f"{prefix}/{key}", [file.data])
        written.append(stats.written(f"{view.location}/{key}", file.spec_id, file.place))
    return written


def still_holds(begun: View, view: View, inputs: Sequence[DataFile]) -> bool:
    return set(inputs) <= set(view.files) and set(view.deletes) == set(begun.deletes)
