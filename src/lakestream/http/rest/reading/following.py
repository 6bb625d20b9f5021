"""Partitions read on from an offset: what is committed, in the order of each partition, with waiting for more."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from lakestream.access import Principal
from lakestream.errors import LakestreamError, OffsetOutOfRange
from lakestream.http.rest.errors import RestError
from lakestream.http.rest.reading.showing import PlainRow, rows_of
from lakestream.metadata.topics.list import Topic
from lakestream.records.visible import visible_runs
from lakestream.runtime import Runtime
from lakestream.stream import EARLIEST, LATEST, Fetched, FetchRequest, OffsetQuery, Streams

Cursor = Mapping[int, int]
"""Of each partition the offset that comes next."""
_CURSOR_MOST: Final = 400_000
_ASIDE_BYTES: Final = 256 * 1024
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


class Followed(NamedTuple):
    """`cursor`: where to go on."""

    rows: list[PlainRow]
    cursor: dict[int, int]
    size_bytes: int


class Follower:
    def __init__(self, streams: Streams, runtime: Runtime) -> None:
        self._streams = streams
        self._runtime = runtime

    async def start(self, principal: Principal, topic: Topic, partitions: Sequence[int], offset: str) -> dict[int, int]:
        """Where the offset is: a number, `earliest`, `latest`, or a cursor as `cursor_text` writes it. Raises
        `RestError`."""
        if offset in _WORDS:
            queries = [OffsetQuery(topic.topic_id, index, _WORDS[offset], committed=True) for index in partitions]
            found = await self._streams.list_offsets(principal, queries)
            begun: dict[int, int] = {}
            for index, each in zip(partitions, found, strict=True):
                if isinstance(each, LakestreamError):
                    raise each
                begun[index] = each.offset
            return begun
        if ":" in offset:
            found_cursor = parse_cursor(offset)
            missing = [index for index in partitions if index not in found_cursor]
            first = await self.start(principal, topic, missing, "earliest") if missing else {}
            return {index: found_cursor.get(index, first.get(index, 0)) for index in partitions}
        number = _number(offset)
        return dict.fromkeys(partitions, number)

    async def read(
        self, principal: Principal, topic: Topic, cursor: Cursor, *, most: int, max_bytes: int, wait_ms: int
    ) -> Followed:
        """At most so many records. Raises what is wrong with any of the partitions."""
        share = max(max_bytes // len(cursor), 1)
        requests = [
            FetchRequest(topic.topic_id, index, offset, share, committed=True) for index, offset in cursor.items()
        ]
        found = await self._streams.fetch(principal, requests, min_bytes=1, max_bytes=max_bytes, max_wait_ms=wait_ms)
        fetched: list[tuple[int, int, Fetched]] = []
        for (index, offset), each in zip(cursor.items(), found, strict=True):
            if isinstance(each, OffsetOutOfRange):
                raise OffsetOutOfRange(f"partition {index} has no offset {offset}: {each}")
            if isinstance(each, LakestreamError):
                raise each
            fetched.append((index, offset, each))
        size_bytes = sum(each.size_bytes for _, _, each in fetched)

        def work() -> Followed:
            return _decoded(fetched, dict(cursor), most, size_bytes)

        return await self._runtime.off_loop(work) if size_bytes > _ASIDE_BYTES else work()


def _decoded(
    fetched: Sequence[tuple[int, int, Fetched]], cursor: dict[int, int], most: int, size_bytes: int
) -> Followed:
    rows: list[PlainRow] = []
    for index, offset, each in fetched:
        if not each.parts or len(rows) >= most:
            continue
        runs, after = visible_runs(index, b"".join(each.parts), each.aborted)
        cursor[index] = max(after, offset)
        for row in rows_of(runs, offset):
            if len(rows) >= most:
                cursor[index] = row.offset
                break
            rows.append(row)
    return Followed(rows, cursor, size_bytes)


def cursor_text(cursor: Cursor) -> str:
    """As clients keep it: `0:17,1:4`."""
    return ",".join(f"{index}:{offset}" for index, offset in sorted(cursor.items()))


def parse_cursor(text: str) -> dict[int, int]:
    """Raises `RestError`."""
    if len(text) > _CURSOR_MOST:
        raise RestError(400, "this is no cursor: it is too long")
    found = {}
    for part in text.split(","):
        index, colon, offset = part.partition(":")
        if not colon:
            raise RestError(400, f"this is no cursor: {text[:100]!r}")
        found[_number(index)] = _number(offset)
    return found


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < 1 << 63):
        raise RestError(400, f"an offset is a number, earliest, latest, or a cursor, not {text[:50]!r}")
    return int(text)
