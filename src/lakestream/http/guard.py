"""Who may speak to the HTTP door through a browser: nobody but pages of its own.

A web page that somebody opens can make their browser send requests to any address, ours on the loopback included. Three
things keep it out, before any password would have to: the `Host` must be a name of ours (a name of the page's that was
made to point here is not), a request that says it comes from another origin is refused, and a body is JSON and says so,
which a browser sends to strangers only after asking (and it is never told yes).
"""

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from lakestream.http.iceberg.errors import error_response
from lakestream.http.registry.errors import refusal
from lakestream.http.rest.errors import Fault
from lakestream.http.rest.errors import refusal as rest_refusal

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_JSON: Final = "application/json"
_REGISTRY: Final = "/registry/"
_REST: Final = ("/v3/", "/kafka/", "/topics/", "/consumers/")
_FOREIGN_SITES: Final = ("cross-site", "same-site")


class Guard:
    """`hosts`: names and addresses that clients reach the door by, beside this machine's own; `*`: any."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._hosts = {host.strip("[]").lower() for host in (*_LOOPBACK, socket.gethostname(), *hosts) if host}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refusal(Request(scope)) if scope["type"] == "http" else None
        await (refused or self._app)(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        headers = request.headers
        host = headers.get("Host", "")
        if not self._is_ours(host, request.scope):
            told = f"{host[:300]!r} is no name of this server: an operator may add it to the setting http.hosts"
            return _refused(request, 421, "BadRequestException", told)
        if _is_foreign(request, host):
            return _refused(request, 403, "ForbiddenException", "requests of other web pages are not served")
        if _has_body(request) and not _is_json(headers.get("Content-Type", "")):
            return _refused(request, 415, "BadRequestException", f"a body must have the content type {_JSON}")
        return None

    def _is_ours(self, host: str, scope: Scope) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if "*" in self._hosts or name in self._hosts:
            return True
        # The very address that the connection came in at. No name that points here can be spelled so.
        return _is_address(name) and name == (scope.get("server") or ("",))[0]


def _refused(request: Request, status: int, kind: str, message: str) -> Response:
    """In the words of whom the request is for."""
    if request.url.path.startswith(_REGISTRY):
        return refusal(status, message)
    if request.url.path.startswith(_REST):
        return rest_refusal(Fault(status, message))
    return error_response(request, status, kind, message)


def _is_json(content_type: str) -> bool:
    """Or a kind of it. No browser sends one of these to strangers without asking."""
    kind = content_type.split(";")[0].strip().lower()
    return kind == _JSON or (kind.startswith("application/") and kind.endswith("+json"))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_foreign(request: Request, host: str) -> bool:
    """A link that somebody follows from another page is not: that page learns nothing, and nothing changes."""
    origin = request.headers.get("Origin")
    if origin is not None:
        return origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower())
    followed = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
    return request.headers.get("Sec-Fetch-Site") in _FOREIGN_SITES and not followed


def _has_body(request: Request) -> bool:
    return request.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in request.headers
