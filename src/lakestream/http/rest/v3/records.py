"""`POST /v3/clusters/…/topics/…/records`: any number of records in one request, an object each, and a report for each
in their order, as they become durable.

A report goes out while the client may still be sending. What is wrong with one record is told in its place, and the
others are taken; what is no JSON ends the stream after all that came before it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lakestream.access import Principal
from lakestream.errors import LakestreamError
from lakestream.http.identity import principal_of
from lakestream.http.rest.answers import JSON
from lakestream.http.rest.endpoints import Endpoint
from lakestream.http.rest.errors import INVALID_PAYLOAD, Fault, RestError, fault_of
from lakestream.http.rest.life import ClientGone, DoorLife, send_to_client
from lakestream.http.rest.producing.encoding import RecordEncoder, WantedRecord
from lakestream.http.rest.producing.reports import RecordReport, reported
from lakestream.http.rest.producing.sent import SentData, SentRecord
from lakestream.http.rest.producing.splitting import ObjectSplitter
from lakestream.http.rest.producing.writing import RecordWriter, Taken
from lakestream.http.rest.v3.clusters import links_of
from lakestream.http.rest.v3.topics import TOPIC
from lakestream.metadata.topics.list import Topic
from lakestream.metrics import RestMetrics
from lakestream.stream import Streams

_REPORT: Final = msgspec.json.Encoder()
_RECORD: Final = msgspec.json.Decoder(SentRecord)
_IDLE_S: Final = 300.0
"""A stream over which nothing comes for so long is ended."""
_AT_ONCE: Final = 4
"""Groups of records of one stream that are under way. Their order is kept by the log's own queue."""
_STOPPED: Final = Fault(50303, "this door is being stopped: send what follows again")
_IDLE: Final = Fault(408, "Streaming connection open for longer than allowed: nothing came. Connection will be closed.")
_EMPTY: Final = Fault(INVALID_PAYLOAD, "Payload error. Null input provided. Data is required.")
_Datas = tuple[SentData | None, SentData | None]


class _Group(NamedTuple):
    datas: Sequence[_Datas]
    taken: Taken | None
    """None: all of them are faults."""
    wanted: Sequence[WantedRecord | Fault]


_Groups = asyncio.Queue[_Group | None]
"""None is the end."""


class RecordRoutes:
    def __init__(
        self, streams: Streams, encoder: RecordEncoder, writer: RecordWriter, life: DoorLife, metrics: RestMetrics
    ) -> None:
        self._streams = streams
        self._encoder = encoder
        self._writer = writer
        self._life = life
        self._metrics = metrics

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "POST",
                f"{TOPIC}/records",
                self.rest_produce,
                "Write records, one object each, one after the other; the answer has a report for each in their order",
                "Records",
                SentRecord,
                RecordReport,
            )
        ]

    async def rest_produce(self, request: Request) -> Response:
        links_of(request, self._streams)
        principal = principal_of(request)
        topic = await self._writer.topic(principal, request.path_params["topic_name"])
        if request.headers.get("Content-Length") == "0" or not _has_body(request):
            raise RestError(INVALID_PAYLOAD, "Payload error. Request body is empty. Data is required.")
        self._life.check()
        return _Producing(self, principal, topic)

    async def run(self, principal: Principal, topic: Topic, receive: Receive, send: Send) -> None:
        """Reads and answers at the same time."""
        groups, room = _Groups(), asyncio.Semaphore(_AT_ONCE)
        with self._life.stream():
            reading = asyncio.ensure_future(self._read(principal, topic, receive, groups, room))
            try:
                while (group := await groups.get()) is not None:
                    body = await self._told(topic, group)
                    await send_to_client(send, body, more=True)
                    room.release()
                await reading
                await send_to_client(send, b"", more=False)
            except ClientGone:
                return
            finally:
                reading.cancel()
                await asyncio.wait((reading,))
                while not groups.empty():
                    left = groups.get_nowait()
                    if left is not None and left.taken is not None:
                        with suppress(LakestreamError):
                            await left.taken.outcomes()

    async def _read(
        self, principal: Principal, topic: Topic, receive: Receive, groups: "_Groups", room: asyncio.Semaphore
    ) -> None:
        splitter = ObjectSplitter(_RECORD, 2 * self._streams.topics.max_batch_bytes + (1 << 16))
        any_came = False
        try:
            while not splitter.is_broken:
                await self._writer.room()
                message = await self._life.unless_stopped(receive(), _IDLE_S)
                if message is None:
                    groups.put_nowait(_faulty(_STOPPED if self._life.is_stopping else _IDLE))
                    return
                if message["type"] == "http.disconnect":
                    return
                found = splitter.feed(message.get("body", b""))
                is_last = not message.get("more_body", False)
                if is_last and not splitter.is_broken and (fault := splitter.finish()) is not None:
                    found.append(fault)
                if found:
                    any_came = True
                    await room.acquire()
                    groups.put_nowait(await self._taken(principal, topic, found))
                if is_last:
                    if not any_came:
                        groups.put_nowait(_faulty(_EMPTY))
                    return
        finally:
            groups.put_nowait(None)

    async def _taken(self, principal: Principal, topic: Topic, found: Sequence[SentRecord | Fault]) -> _Group:
        datas = [(None, None) if isinstance(each, Fault) else (each.key, each.value) for each in found]
        try:
            wanted = await self._encoder.encoded(principal, topic.name, found)
            taken = await self._writer.take(principal, topic, wanted)
        except LakestreamError as error:
            return _Group(datas, None, [fault_of(error)] * len(found))
        return _Group(datas, taken, taken.wanted)

    async def _told(self, topic: Topic, group: _Group) -> bytes:
        outcomes = group.wanted if group.taken is None else await group.taken.outcomes()
        cluster_id = self._streams.cluster_id
        reports = []
        for datas, wanted, outcome in zip(group.datas, group.wanted, outcomes, strict=True):
            assert not isinstance(outcome, WantedRecord)
            report = reported(cluster_id, topic.name, datas, wanted, outcome)
            if report.message is not None:
                self._metrics.refused(report.error_code)
            reports.append(report)
        return _REPORT.encode_lines(reports)


class _Producing(Response):
    def __init__(self, routes: RecordRoutes, principal: Principal, topic: Topic) -> None:
        super().__init__(media_type=JSON)
        del self.headers["Content-Length"]
        self._routes = routes
        self._principal = principal
        self._topic = topic

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await self._routes.run(self._principal, self._topic, receive, send)


def _faulty(fault: Fault) -> _Group:
    return _Group([(None, None)], None, [fault])


def _has_body(request: Request) -> bool:
    return "Content-Length" in request.headers or "Transfer-Encoding" in request.headers
