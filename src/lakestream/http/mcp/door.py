"""`/mcp` on the HTTP door's port: streamable HTTP, stateless, one JSON answer for each request. Any door serves any."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lakestream.http.mcp.tools import StreamTools

_BODY_MOST: Final = 1 << 20


class McpDoor:
    """Serves while `running` is entered. Who may come at all the door's own guard has seen to."""

    __name__ = "mcp"

    def __init__(self, tools: StreamTools) -> None:
        server = tools.server()
        server.streamable_http_app(
            stateless_http=True,
            json_response=True,
            max_request_body_size=_BODY_MOST,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        self._manager: StreamableHTTPSessionManager = server.session_manager

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            async with self._manager.run():
                yield
        except BaseExceptionGroup as group:
            # The manager has a task group: what ends it from outside comes back wrapped.
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None
            raise

    def route(self) -> Route:
        return Route("/mcp", self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._manager.asgi_app(scope, receive, send)
