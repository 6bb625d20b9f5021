"""Dead letters again: rows of a stream's table that stayed bytes, though their schema is known now, get their columns.

A file at a time, and each by a commit of its own on exactly one view, as a merge makes it: an interrupted replay has
done what it has done, and the next goes on with what is left. Rows that were filled are none that a replay looks at.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from lakestream.errors import ObjectMissing, RequestError
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.evolving import settle, teach, teach_keys
from lakestream.frontier.moving.tiles.writing import MAX_UNKNOWN
from lakestream.frontier.upkeep.rewrite import is_inside, put_in_place
from lakestream.metadata.topics.list import Topic
from lakestream.model import DataFile
from lakestream.records.framing import unknown_ids
from lakestream.schemas.growing import BY_ID, RAW_FORMAT
from lakestream.table.rewriting.filling import Filler, Scout, scouted
from lakestream.table.rewriting.rewriter import Rewriter, Unmergeable
from lakestream.table.shape import key_shape
from lakestream.table.view import View

_ROUNDS_MOST: Final = 10
"""How often files are looked for that took the place of others meanwhile."""


@dataclass(slots=True)
class Replayed:
    """`files` were looked at, of `of_files`; `reasons`: why rows were left as they are, each with how many."""

    files: int = 0
    of_files: int = 0
    filled: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def left(self) -> int:
        return self.reasons.total()


async def replay(
    lake: Lake,
    topic: Topic,
    told: Callable[[Replayed], None] = lambda _: None,
    *,
    rewriter: Rewriter | None = None,
) -> Replayed:
    """Fills what can be filled. `told` hears of every file. Raises `RequestError` for a table whose files are not ours
    to write."""
    view = await settle(lake, topic, await lake.catalog.load(topic.topic_id))
    if not is_inside(lake, view):
        raise RequestError(f"the table of {topic.name} lies outside of the bucket: its files are not ours to write")
    files = _Files(lake, topic, rewriter or Rewriter(lake.objects, max_bytes=lake.settings.max_rewrite_bytes))
    for _ in range(_ROUNDS_MOST):
        wanted = [file for file in view.files if file.path not in files.seen]
        if not wanted:
            break
        files.done.of_files = files.done.files + len(wanted)
        for file in wanted:
            following = await files.replay(view, file)
            if following is None:
                break
            view = following
            told(files.done)
        view = await lake.catalog.load(topic.topic_id)
    return files.done


@dataclass(slots=True)
class _Files:
    """`seen`: the paths of files that are done with."""

    lake: Lake
    topic: Topic
    rewriter: Rewriter
    done: Replayed = field(default_factory=Replayed)
    seen: set[str] = field(default_factory=set)

    async def replay(self, view: View, file: DataFile) -> View | None:
        """The view after it. None: somebody else has changed the file, and its rows are where the next view says."""
        count = 0
        try:
            count, unknown, unknown_keys = await self._scouted(view, file)
            if unknown:
                view = await teach(self.lake, self.topic, view, unknown)
            if unknown_keys:
                view = await teach_keys(self.lake, self.topic, view, unknown_keys)
            following = await self._filled(view, file) if count else view
        except Unmergeable as error:
            self.done.reasons[f"their file cannot be rewritten here: {error}"] += count
            following = view
        except ObjectMissing:
            following = None
        if following is not None:
            self.seen.add(file.path)
            self.done.files += 1
        return following

    async def _scouted(self, view: View, file: DataFile) -> tuple[int, list[int], list[int]]:
        """How many of its rows may be filled, and the schemas that their values and their keys name and the table does
        not know."""
        options = self.topic.options
        known = [schema.schema_id for schema in view.shape.schemas]
        known_keys = [schema.schema_id for schema in key_shape(view.shape).schemas]
        scout = Scout(
            partial(unknown_ids, known=known, most=MAX_UNKNOWN),
            partial(unknown_ids, known=known_keys, most=MAX_UNKNOWN) if self.fills_keys else None,
        )
        columns = scouted(view.shape, keys=self.fills_keys)
        await self.rewriter.read(file, await self.rewriter.deleted(view.deletes), columns, scout.take, view.shape)
        unknown = sorted(scout.unknown)[:MAX_UNKNOWN] if options.value_format == BY_ID else []
        unknown_keys = sorted(scout.unknown_keys)[:MAX_UNKNOWN] if options.key_format == BY_ID else []
        return scout.row_count, unknown, unknown_keys

    @property
    def fills_keys(self) -> bool:
        return self.topic.options.key_format != RAW_FORMAT

    async def _filled(self, view: View, file: DataFile) -> View | None:
        filler = Filler(view.shape, keys=self.fills_keys)
        rewritten = await self.rewriter.rewrite(
            [file],
            view.deletes,
            shape=view.shape,
            own_file_bytes=self.lake.settings.own_file_bytes,
            compression=view.compression,
            change=filler.fill,
            layout=view.layout,
            order=view.order if file.order_id else None,
        )
        if filler.filled:
            swapped = await put_in_place(self.lake, view, [file], rewritten)
            if swapped is None:
                return None
            self.seen |= swapped.added
            view = swapped.view
        self.done.filled += filler.filled
        self.done.reasons += filler.reasons
        return view
