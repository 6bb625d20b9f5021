"""`GET …/records`: read from an offset, wait for what comes, or follow.

As JSON (a list and where to go on), as NDJSON (a record each line) or, for browsers, as `text/event-stream`: the id of
an event is the cursor behind it, which a browser that comes back sends as `Last-Event-ID`.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lakestream.access import Principal
from lakestream.errors import LakestreamError, UnknownStream
from lakestream.http.identity import principal_of
from lakestream.http.rest.answers import JSON, Links, ListMetadata, answer
from lakestream.http.rest.endpoints import FLAG, Endpoint, Query
from lakestream.http.rest.errors import RestError, fault_json, fault_of
from lakestream.http.rest.life import ClientGone, DoorLife, send_to_client
from lakestream.http.rest.reading.following import Cursor, Follower, cursor_text
from lakestream.http.rest.reading.showing import FORMATS, PlainRow, RecordShower, ShownRecord
from lakestream.http.rest.requests import path_number, query_flag, query_number
from lakestream.http.rest.v3.clusters import links_of
from lakestream.http.rest.v3.partitions import PARTITION
from lakestream.http.rest.v3.topics import TOPIC, known_topic
from lakestream.metadata.topics.list import Topic
from lakestream.metrics import RestMetrics
from lakestream.stream import Streams

NDJSON: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"
_RECORDS_MOST: Final = 10_000
_BYTES_MOST: Final = 16 << 20
_WAIT_MOST_MS: Final = 60_000
_ROUND_MS: Final = 10_000
"""How long a follower waits before it is told that the stream is still there."""
_ROUND_RECORDS: Final = 500
_ROUND_BYTES: Final = 1 << 20
_RETRY_MS: Final = 1_000


class ReadRecords(msgspec.Struct, frozen=True, kw_only=True):
    """`next_offset`: where to go on, of one partition; `cursor`: the same of all that were asked for."""

    kind: str
    metadata: ListMetadata
    cluster_id: str
    topic_name: str
    data: list[ShownRecord]
    next_offset: int | None
    cursor: str


class _Asked(NamedTuple):
    topic: Topic
    cursor: Cursor
    key: str
    value: str
    most: int
    max_bytes: int
    wait_ms: int


QUERY: Final = (
    Query("offset", {"type": "string"}, "A number, earliest (the default), latest, or a cursor of an earlier answer"),
    Query("max_records", {"type": "integer", "minimum": 1, "maximum": _RECORDS_MOST}, "100 by default"),
    Query("max_bytes", {"type": "integer", "minimum": 1, "maximum": _BYTES_MOST}, "About 1 MiB by default"),
    Query(
        "wait_ms", {"type": "integer", "minimum": 0, "maximum": _WAIT_MOST_MS}, "How long to wait for a first record"
    ),
    Query("key_format", {"type": "string", "enum": [*FORMATS]}, "How keys are shown: auto by default"),
    Query("value_format", {"type": "string", "enum": [*FORMATS]}, "How values are shown: auto by default"),
    Query("follow", FLAG, "As NDJSON: go on with what comes, without an end"),
)


class ReadingRoutes:
    def __init__(
        self, streams: Streams, follower: Follower, shower: RecordShower, life: DoorLife, metrics: RestMetrics
    ) -> None:
        self._streams = streams
        self._follower = follower
        self._shower = shower
        self._life = life
        self._metrics = metrics

    def endpoints(self) -> list[Endpoint]:
        forms = (JSON, NDJSON, EVENTS)
        which = Query("partition", {"type": "integer", "minimum": 0}, "Without one all partitions are read")
        resumed = (Query("Last-Event-ID", {"type": "string"}, "The id of the last event: the cursor behind it"),)
        return [
            Endpoint(
                "GET",
                f"{TOPIC}/records",
                self.rest_read_topic,
                "Read records, wait for them, follow them",
                "Records",
                None,
                ReadRecords,
                query=(which, *QUERY),
                answers=forms,
                headers=resumed,
            ),
            Endpoint(
                "GET",
                f"{PARTITION}/records",
                self.rest_read_partition,
                "Read records, wait for them, follow them",
                "Records",
                None,
                ReadRecords,
                query=QUERY,
                answers=forms,
                headers=resumed,
            ),
        ]

    async def rest_read_topic(self, request: Request) -> Response:
        links = links_of(request, self._streams)
        topic = await known_topic(request, self._streams)
        partition = query_number(request, "partition", -1, 0, (1 << 31) - 1)
        return await self._read(request, links, topic, None if partition < 0 else partition)

    async def rest_read_partition(self, request: Request) -> Response:
        links = links_of(request, self._streams)
        topic = await known_topic(request, self._streams)
        return await self._read(request, links, topic, path_number(request, "partition_id"))

    async def _read(self, request: Request, links: Links, topic: Topic, partition: int | None) -> Response:
        if partition is not None and partition >= topic.partitions:
            raise UnknownStream(f"topic {topic.name} has no partition {partition}")
        asked = await self._asked(request, topic, partition)
        principal, wanted = principal_of(request), request.headers.get("Accept", "").lower()
        if EVENTS in wanted or (NDJSON in wanted and query_flag(request, "follow")):
            self._life.check()
            return _Following(self, principal, asked, EVENTS if EVENTS in wanted else NDJSON)
        found = await self._waited(principal, asked)
        if found is None:
            raise RestError(50303, "this door is being stopped: ask again")
        records, cursor = found
        if NDJSON in wanted:
            body = b"".join([msgspec.json.encode(each) + b"\n" for each in records])
            return Response(body, media_type=NDJSON, headers={"Lakestream-Cursor": cursor_text(cursor)})
        place = ("topics", topic.name, *(() if partition is None else ("partitions", partition)), "records")
        path = links.path(*place)
        return answer(
            ReadRecords(
                kind="KafkaRecordList",
                metadata=ListMetadata(path, f"{path}?offset={cursor_text(cursor)}"),
                cluster_id=links.cluster_id,
                topic_name=topic.name,
                data=records,
                next_offset=None if partition is None else cursor[partition],
                cursor=cursor_text(cursor),
            )
        )

    async def _asked(self, request: Request, topic: Topic, partition: int | None) -> _Asked:
        params = request.query_params
        forms = [params.get(name, "auto").lower() for name in ("key_format", "value_format")]
        strange = next((form for form in forms if form not in FORMATS), None)
        if strange is not None:
            raise RestError(400, f"a format is one of {', '.join(FORMATS)}, not {strange[:50]!r}")
        partitions = [*range(topic.partitions)] if partition is None else [partition]
        offset = request.headers.get("Last-Event-ID") or params.get("offset", "earliest")
        most = query_number(request, "max_records", 100, 1, _RECORDS_MOST)
        max_bytes = query_number(request, "max_bytes", 1 << 20, 1, _BYTES_MOST)
        wait_ms = query_number(request, "wait_ms", 0, 0, _WAIT_MOST_MS)
        cursor = await self._follower.start(principal_of(request), topic, partitions, offset)
        return _Asked(topic, cursor, forms[0], forms[1], most, max_bytes, wait_ms)

    async def _waited(self, principal: Principal, asked: _Asked) -> tuple[list[ShownRecord], dict[int, int]] | None:
        """What there is, or what comes within the time; None: the door is stopped meanwhile."""
        now_ms = self._streams.cluster.now_ms
        cursor, deadline_ms = asked.cursor, now_ms() + asked.wait_ms
        while True:
            left_ms = max(0, deadline_ms - now_ms())
            work = self._follower.read(
                principal, asked.topic, cursor, most=asked.most, max_bytes=asked.max_bytes, wait_ms=left_ms
            )
            found = await self._life.unless_stopped(work)
            if found is None:
                return None
            is_gap = not found.rows and found.cursor != dict(cursor)
            if found.rows or not (is_gap or left_ms):
                return await self._shown(found.rows, asked), found.cursor
            cursor = found.cursor

    async def _shown(self, rows: list[PlainRow], asked: _Asked) -> list[ShownRecord]:
        self._metrics.read(len(rows))
        return await self._shower.shown(rows, asked.key, asked.value)

    async def follow(self, principal: Principal, asked: _Asked, form: str, send: Send) -> None:
        """Until the client goes, or the door is stopped. What goes wrong is told as the last line or event."""
        cursor = dict(asked.cursor)
        try:
            with self._life.stream():
                if form == EVENTS:
                    await send_to_client(send, b"retry: %d\n\n" % _RETRY_MS, more=True)
                while not self._life.is_stopping:
                    work = self._follower.read(
                        principal, asked.topic, cursor, most=_ROUND_RECORDS, max_bytes=_ROUND_BYTES, wait_ms=_ROUND_MS
                    )
                    found = await self._life.unless_stopped(work)
                    if found is None:
                        break
                    lines = [_line(each, cursor, form) for each in await self._shown(found.rows, asked)]
                    cursor = found.cursor
                    body = b"".join(lines) or (b": \n\n" if form == EVENTS else b"\n")
                    await send_to_client(send, body, more=True)
        except ClientGone:
            return
        except (LakestreamError, RestError) as error:
            told = fault_json(fault_of(error))
            body = b"event: error\ndata: " + told + b"\n\n" if form == EVENTS else told + b"\n"
            await send_to_client(send, body, more=True)
        await send_to_client(send, b"", more=False)


class _Following(Response):
    def __init__(self, routes: ReadingRoutes, principal: Principal, asked: _Asked, form: str) -> None:
        super().__init__(media_type=form, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["Content-Length"]
        self._routes = routes
        self._principal = principal
        self._asked = asked
        self._form = form

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        following = self._routes.follow(self._principal, self._asked, self._form, send)
        await _while_there(following, receive)


async def _while_there(work: Coroutine[Any, Any, None], receive: Receive) -> None:
    """The work, which is cancelled when the client goes away."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            continue

    doing, watching = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait((doing, watching), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
    finally:
        watching.cancel()
        if not doing.done():
            doing.cancel()
            await asyncio.wait((doing,))


def _line(record: ShownRecord, cursor: dict[int, int], form: str) -> bytes:
    """Moves the cursor behind the record."""
    cursor[record.partition_id] = record.offset + 1
    told = msgspec.json.encode(record)
    if form != EVENTS:
        return told + b"\n"
    return b"id: " + cursor_text(cursor).encode() + b"\ndata: " + told + b"\n\n"
