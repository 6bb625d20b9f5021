"""Who sent a request: set here and nowhere else, read by handlers through `principal_of`."""

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from lakestream.access import ANONYMOUS, Principal


class Identified:
    """Nobody is asked yet who they are."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["principal"] = ANONYMOUS
        await self._app(scope, receive, send)


def principal_of(request: Request) -> Principal:
    principal: Principal = request.state.principal
    return principal
