"""Records that agents write, where the door lets them: appended as those of any producer, each with its address."""

from typing import Any

import msgspec

from lakestream.access import Principal
from lakestream.errors import InvalidRecords, Overloaded, RequestError
from lakestream.http.rest.errors import Fault
from lakestream.http.rest.producing.encoding import RecordEncoder
from lakestream.http.rest.producing.schemas import ProduceSchemas
from lakestream.http.rest.producing.sent import SentData, SentRecord
from lakestream.http.rest.producing.writing import RecordWriter, WrittenRecord
from lakestream.metrics import RestMetrics
from lakestream.runtime import Runtime
from lakestream.schemas.growing import BY_ID
from lakestream.schemas.registry.registry import SchemaRegistry
from lakestream.schemas.source import SchemaSource
from lakestream.stream import Streams

_UNFRAMED = "latest"
_BUSY = (429, 503)


class Publisher:
    def __init__(
        self,
        streams: Streams,
        registry: SchemaRegistry | None,
        source: SchemaSource,
        runtime: Runtime,
        metrics: RestMetrics,
    ) -> None:
        self._encoder = RecordEncoder(ProduceSchemas(registry, source, runtime), runtime)
        self._writer = RecordWriter(streams, metrics)

    async def publish(self, principal: Principal, stream: str, key: str | None, value: Any) -> WrittenRecord:
        """Durable when it returns. A value of a stream with schemas is an object of the newest one; else text is taken
        as it is, anything else as JSON, and null is a tombstone. Raises `NotAuthorized`, `UnknownStream`,
        `RequestError`, `InvalidRecords`, `Overloaded`."""
        topic = await self._writer.topic(principal, stream)
        values = topic.options.value_format
        if values == _UNFRAMED:
            raise RequestError(f"values of {stream} are written by their schema without its id: use a producer")
        kind = None if values == BY_ID else "STRING" if isinstance(value, str) else "JSON"
        sent = SentRecord(
            key=None if key is None else SentData(msgspec.Raw(msgspec.json.encode(key)), "STRING"),
            value=SentData(msgspec.Raw(msgspec.json.encode(value)), kind),
        )
        await self._writer.room()
        wanted = await self._encoder.encoded(principal, stream, [sent])
        [outcome] = await (await self._writer.take(principal, topic, wanted)).outcomes()
        if isinstance(outcome, Fault):
            raise Overloaded(outcome.message) if outcome.status in _BUSY else InvalidRecords(outcome.message)
        return outcome
