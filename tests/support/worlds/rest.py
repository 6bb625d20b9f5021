"""The REST door over the streams of a broker, without a server: what a test of one of its parts needs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from starlette.applications import Starlette

from lakestream.access import ALLOW_ALL, Authorizer
from lakestream.coordination.groups.looking import GroupViews
from lakestream.http.identity import Identified
from lakestream.http.rest.door import RestDoor
from lakestream.metrics import RestMetrics
from lakestream.schemas.registry.registry import SchemaRegistry
from lakestream.schemas.registry.source import RegistrySource
from lakestream.stream import Streams
from lakestream.stream.appending.schemas import TopicSchemas
from lakestream.stream.engine import StreamEngine
from support.worlds.brokers import BrokerWorld


@dataclass
class RestWorld:
    world: BrokerWorld
    engine: StreamEngine

    def door(self, authorizer: Authorizer = ALLOW_ALL) -> RestDoor:
        store, runtime = self.world.store, self.world.runtime
        source = RegistrySource(store)
        registry = SchemaRegistry(store, self.world.objects, runtime, authorizer)
        streams = Streams(self.engine, authorizer, TopicSchemas(source))
        return RestDoor(streams, GroupViews(store, authorizer), registry, source, runtime, RestMetrics())

    def client(self, door: RestDoor) -> httpx.AsyncClient:
        app: Any = Identified(Starlette(routes=door.routes()))
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


@asynccontextmanager
async def rest_world() -> AsyncIterator[RestWorld]:
    world = BrokerWorld()
    async with world.brokers(1) as [engine]:
        yield RestWorld(world, engine)
