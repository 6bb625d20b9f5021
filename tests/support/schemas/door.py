"""The registry's HTTP door without a network, over a store and a bucket that outlive it."""

import json
import random
from dataclasses import dataclass, field
from typing import Any

import httpx

from lakestream.access import ALLOW_ALL, Authorizer
from lakestream.http.identity import Identified
from lakestream.http.registry.routes import registry_app
from lakestream.metadata.store import Store
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.objects import ObjectStore
from lakestream.objects.memory import MemoryObjects
from lakestream.runtime import Runtime, system
from lakestream.schemas.registry.registry import SchemaRegistry


def _runtime() -> Runtime:
    return Runtime(system().clock, random.Random(7))


@dataclass
class RegistryDoor:
    """Answers are (status, JSON)."""

    store: Store = field(default_factory=lambda: MemoryStore(_runtime()))
    objects: ObjectStore = field(default_factory=lambda: MemoryObjects(system().clock))
    runtime: Runtime = field(default_factory=_runtime)
    authorizer: Authorizer = ALLOW_ALL

    def __post_init__(self) -> None:
        self.registry = SchemaRegistry(self.store, self.objects, self.runtime, self.authorizer)
        transport = httpx.ASGITransport(Identified(registry_app(self.registry)), raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    def again(self) -> "RegistryDoor":
        """Another door on the same store and bucket."""
        return RegistryDoor(self.store, self.objects, self.runtime, self.authorizer)

    async def ask(self, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
        answer = await self.client.request(method, path, json=body, params=query or None)
        assert answer.headers["content-type"].startswith(("application/vnd.schemaregistry", "application/json"))
        return answer.status_code, answer.json()

    async def get(self, path: str, **query: Any) -> Any:
        status, found = await self.ask("GET", path, **query)
        assert status == 200, found
        return found

    async def register(self, subject: str, schema: Any, kind: str = "AVRO", **more: Any) -> int:
        """The id. `schema`: text, or what is written as JSON."""
        status, found = await self.ask("POST", f"/subjects/{subject}/versions", sent(schema, kind, **more))
        assert status == 200, found
        return int(found["id"])

    async def code(self, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, int]:
        """Status and error code of a refusal, which has a sentence."""
        status, found = await self.ask(method, path, body, **query)
        assert status >= 400, found
        assert len(found["message"]) > 5
        return status, found["error_code"]


def sent(schema: Any, kind: str = "AVRO", **more: Any) -> dict[str, Any]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return {"schema": text, "schemaType": kind, **more}


def record(*fields: Any, name: str = "Order") -> dict[str, Any]:
    """An Avro record. A field is a name, of type string; or (name, type); or (name, type, default)."""
    listed = []
    for each in fields:
        parts = (each, "string") if isinstance(each, str) else each
        listed.append(dict(zip(("name", "type", "default"), parts, strict=False)))
    return {"type": "record", "name": name, "fields": listed}
