"""A schema registry of somebody else: our own door as a peer on a port of its own, or whatever a test makes of it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from lakestream.http.identity import Identified
from lakestream.http.registry.routes import registry_app
from support.schemas.door import RegistryDoor

Answer = tuple[int, bytes]


@dataclass
class Peer:
    """`answer`: what every request gets instead of the registry's answer, after `delay_s`. `asked`: the paths of
    requests; `headers`: of the last one."""

    door: RegistryDoor
    url: str = ""
    answer: Answer | None = None
    delay_s: float = 0.0
    asked: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope["path"])
        self.headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        await asyncio.sleep(self.delay_s)
        if self.answer is None:
            await self.app(scope, receive, send)
            return
        status, body = self.answer
        headers = [(b"content-type", b"application/json"), (b"location", b"/elsewhere")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def __post_init__(self) -> None:
        self.app: Callable[..., Any] = Identified(registry_app(self.door.registry))


@asynccontextmanager
async def peer() -> AsyncIterator[Peer]:
    opened = Peer(RegistryDoor())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        opened.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(opened, log_config=None, access_log=False, lifespan="off"))
        serving = asyncio.create_task(server._serve([listener]))
        try:
            while not server.started:
                await asyncio.sleep(0.005)
            yield opened
        finally:
            server.should_exit = True
            await serving
