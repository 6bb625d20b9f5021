"""The REST door: all its endpoints, under `/` and under `/kafka`, and the document that describes them."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from lakestream.coordination.groups.looking import GroupViews
from lakestream.http.rest.answers import answer
from lakestream.http.rest.endpoints import Endpoint
from lakestream.http.rest.life import DoorLife
from lakestream.http.rest.openapi import openapi
from lakestream.http.rest.producing.encoding import RecordEncoder
from lakestream.http.rest.producing.schemas import ProduceSchemas
from lakestream.http.rest.producing.writing import RecordWriter
from lakestream.http.rest.reading.following import Follower
from lakestream.http.rest.reading.showing import RecordShower
from lakestream.http.rest.v2.consumers import ConsumersV2
from lakestream.http.rest.v2.topics import TopicsV2
from lakestream.http.rest.v3.clusters import ClusterRoutes
from lakestream.http.rest.v3.configs import ConfigRoutes
from lakestream.http.rest.v3.groups import GroupRoutes
from lakestream.http.rest.v3.partitions import PartitionRoutes
from lakestream.http.rest.v3.reading import ReadingRoutes
from lakestream.http.rest.v3.records import RecordRoutes
from lakestream.http.rest.v3.topics import TopicRoutes
from lakestream.metrics import RestMetrics
from lakestream.runtime import Runtime
from lakestream.schemas.registry.registry import SchemaRegistry
from lakestream.schemas.source import SchemaSource
from lakestream.stream import Streams

DOCUMENTS: Final = ("/v3/openapi.json", "/v3/openapi")


class RestDoor:
    def __init__(
        self,
        streams: Streams,
        groups: GroupViews,
        registry: SchemaRegistry | None,
        source: SchemaSource,
        runtime: Runtime,
        metrics: RestMetrics,
        *,
        num_partitions: int = 1,
        advertised: str = "",
    ) -> None:
        """`registry`: None where schemas are in somebody else's. `num_partitions`: of a topic whose creator does not
        say. `advertised`: host:port of this very door, where that is not the one that clients call."""
        self._life = DoorLife(metrics)
        encoder = RecordEncoder(ProduceSchemas(registry, source, runtime), runtime)
        writer, follower = RecordWriter(streams, metrics), Follower(streams, runtime)
        shower = RecordShower(source, runtime)
        self._consumers = ConsumersV2(streams, groups, shower, runtime, metrics, advertised)
        self.endpoints: list[Endpoint] = [
            *ClusterRoutes(streams).endpoints(),
            *ConfigRoutes(streams).endpoints(),
            *TopicRoutes(streams, num_partitions).endpoints(),
            *RecordRoutes(streams, encoder, writer, self._life, metrics).endpoints(),
            *ReadingRoutes(streams, follower, shower, self._life, metrics).endpoints(),
            *PartitionRoutes(streams).endpoints(),
            *GroupRoutes(streams, groups).endpoints(),
            *TopicsV2(streams, encoder, writer, metrics).endpoints(),
            *self._consumers.endpoints(),
        ]
        self._document = openapi(self.endpoints)

    def routes(self) -> list[BaseRoute]:
        longest = sorted(self.endpoints, key=lambda each: -each.path.count("/"))
        routes = [each.route() for each in longest]
        routes += [Route(path, self.rest_document, methods=["GET"]) for path in DOCUMENTS]
        return [*routes, Mount("/kafka", routes=routes)]

    def stop(self) -> None:
        """Streams and waiting requests come to their end; what was taken in is answered."""
        self._life.stop()

    async def close(self) -> None:
        """The consumers that live here leave their groups."""
        await self._consumers.instances.stop()

    async def rest_document(self, _request: Request) -> Response:
        return answer(self._document)
