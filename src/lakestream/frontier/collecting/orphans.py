"""Collection of table files that no table names: what workers leave behind that crash, or never learn whether their
commit was done.

A file is dead when no retained snapshot names it and none can ever come to name it. Names and frontier are read from
*one* metadata, after the files were listed:

- A listed file that was committed by then is named by that metadata, even if it was not yet when the list was made.
- One of the pipeline's that was not can be committed only while the table's frontier is below the end of each of its
  plan's ranges, and the frontier never falls. A range's last offset below the frontier just read says that its commit,
  wherever it is, is lost: its worker will find the frontier moved. At or above the frontier it may still succeed, and
  the file stays.
- One that takes the place of others carries the last version of the table on which it may be committed, and versions
  only grow: a later one just read says that it never will be.

Names from before the list and a frontier from after it would condemn what was committed in between.
A name carries the last offset of one of its plan's ranges, that of the file's first partition: the ranges of one plan
are committed together, so one that cannot be is enough. Age is courtesy, never part of the proof. Names that we did
not give are never judged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from lakestream.catalog.port import Named
from lakestream.errors import LakestreamError, UnknownStream
from lakestream.frontier.isolation import isolated
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.naming import DATA_FOLDER, FileBound, parse_file_name
from lakestream.frontier.upkeep.rewritten import RewriteBound, parse_rewritten
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.objects.paths import relative, resolved


@dataclass(frozen=True, slots=True)
class Tidied:
    """What one pass did. `failures`: topic and error; those tables come round again."""

    examined: int = 0
    deleted: int = 0
    undeleted: int = 0
    failures: tuple[tuple[str, LakestreamError], ...] = ()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the next pass goes on: behind this topic, or inside its table behind a key."""

    topic: str
    topic_id: UUID
    key: str | None


@dataclass(frozen=True, slots=True)
class _Listing:
    """`old`: the keys of files of ours past their grace. `last` is where the list was cut off; None: it is whole."""

    examined: int
    old: dict[str, FileBound | RewriteBound]
    last: str | None


class Orphans:
    """Remembers how far it came, which only spreads the work."""

    def __init__(self, lake: Lake, topics: Topics) -> None:
        self._lake = lake
        self._topics = topics
        self._place: _Place | None = None

    async def collect(self) -> Tidied:
        """One pass over a bounded number of tables and files; the next goes on behind them. Errors of one table are in
        the result; those of the topic list are raised."""
        examined = deleted = undeleted = 0
        failures: list[tuple[str, LakestreamError]] = []
        for topic, after in self._turn(await self._topics.list()):
            left = self._lake.settings.max_collect_objects - examined
            if left <= 0:
                break
            self._place = _Place(topic.name, topic.topic_id, None)
            try:
                with isolated(topic.name):
                    listed, dead = await self._judge(topic, after, left)
            except UnknownStream:
                continue
            except LakestreamError as error:
                failures.append((topic.name, error))
                continue
            self._place = _Place(topic.name, topic.topic_id, listed.last)
            gone = len(await self._lake.delete(dead))
            examined, deleted, undeleted = examined + listed.examined, deleted + gone, undeleted + len(dead) - gone
        return Tidied(examined, deleted, undeleted, tuple(failures))

    async def find(self, topic: Topic) -> list[str]:
        """The keys of a table's dead files, of as many as one pass looks at. Deletes nothing."""
        _, dead = await self._judge(topic, None, self._lake.settings.max_collect_objects)
        return dead

    def _turn(self, topics: Sequence[Topic]) -> list[tuple[Topic, str | None]]:
        """Whose turn it is, and behind which key."""
        place = self._place
        if place is None:
            return [(topic, None) for topic in topics[: self._lake.settings.max_collect_tables]]
        unfinished = [topic for topic in topics if place.key is not None and topic.topic_id == place.topic_id]
        others = [topic for topic in topics if topic not in unfinished]
        behind = [topic for topic in others if topic.name > place.topic]
        before = [topic for topic in others if topic.name <= place.topic]
        turn = [*((topic, place.key) for topic in unfinished), *((topic, None) for topic in (*behind, *before))]
        return turn[: self._lake.settings.max_collect_tables]

    async def _judge(self, topic: Topic, after: str | None, limit: int) -> tuple[_Listing, list[str]]:
        """The keys that are dead. The first view only says where to look and which files are not worth judging."""
        nothing = _Listing(0, {}, None), list[str]()
        view = await self._lake.catalog.load(topic.topic_id)
        folder, bucket = f"{view.location}/{DATA_FOLDER}", self._lake.objects.url
        key = relative(folder, bucket)
        # A link in the way may lead to the files of another table.
        if key is None or not any(view.frontier) or relative(resolved(folder), resolved(bucket)) != key:
            return nothing
        listed = await self._list(f"{key}/", after, limit)
        live = {_file_name(file.path) for file in view.files}
        suspects = [
            key
            for key, at in listed.old.items()
            if _file_name(key) not in live and (isinstance(at, RewriteBound) or _below(at, view.frontier))
        ]
        if not suspects:
            return listed, []
        # After the list, never before: see above.
        named = await self._lake.catalog.named(topic.topic_id)
        if not named.collectable:
            return listed, []
        # Names without their folders: each is unique, and no spelling of a path can make a named file look unnamed.
        names = {_file_name(path) for path in named.paths}
        return listed, [key for key in suspects if is_lost(listed.old[key], named) and _file_name(key) not in names]

    async def _list(self, prefix: str, after: str | None, limit: int) -> _Listing:
        settings, now_ms = self._lake.settings, self._lake.runtime.clock.now_ms()
        examined = 0
        old: dict[str, FileBound | RewriteBound] = {}
        async for info in self._lake.objects.list(prefix, after=after):
            examined += 1
            name = info.key.removeprefix(prefix)
            at = parse_file_name(name) or parse_rewritten(name)
            if at is not None and now_ms - info.modified_ms >= settings.grace_ms:
                old[info.key] = at
            if examined >= limit:
                return _Listing(examined, old, info.key)
        return _Listing(examined, old, None)


def is_lost(at: FileBound | RewriteBound, named: Named) -> bool:
    """Whether no commit can name the file any more."""
    return named.version > at.last_version if isinstance(at, RewriteBound) else _below(at, named.frontier)


def _below(at: FileBound, frontier: Sequence[int]) -> bool:
    return at.partition < len(frontier) and at.last < frontier[at.partition]


def _file_name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
