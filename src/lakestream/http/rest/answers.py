"""Answers of version 3 as data: what a resource has in common, and links."""

from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

JSON: Final = "application/json"
_VERSION: Final = "/v3/"
T = TypeVar("T")


class Link(msgspec.Struct, frozen=True):
    related: str


class ResourceMetadata(msgspec.Struct, frozen=True):
    self_: str = msgspec.field(name="self")
    resource_name: str | None = None


class ListMetadata(msgspec.Struct, frozen=True):
    self_: str = msgspec.field(name="self")
    next: str | None = None


class RestResource(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    metadata: ResourceMetadata


class ResourceList(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    kind: str
    metadata: ListMetadata
    data: list[T]


class ErrorAnswer(msgspec.Struct, frozen=True):
    error_code: int
    message: str


class Links:
    """Of what a cluster has, at the address that the client called."""

    def __init__(self, request: Request, cluster_id: str) -> None:
        prefix = request.url.path.partition(_VERSION)[0]
        self.root = f"{request.url.scheme}://{request.url.netloc}{prefix}{_VERSION}clusters"
        self.cluster_id = cluster_id

    def path(self, *parts: object) -> str:
        return "/".join((self.root, self.cluster_id, *(quote(str(part), safe="") for part in parts)))

    def to(self, *parts: object) -> Link:
        return Link(self.path(*parts))

    def metadata(self, *parts: object) -> ResourceMetadata:
        """`parts`: of the path, kinds and names in turn."""
        pairs = zip(parts[::2], parts[1::2], strict=False)
        name = "/".join(f"{str(kind).removesuffix('s')}={value}" for kind, value in pairs)
        crn = f"crn:///kafka={self.cluster_id}"
        return ResourceMetadata(self.path(*parts), f"{crn}/{name}" if name else crn)

    def listed(self, kind: str, data: list[T], *parts: object) -> ResourceList[T]:
        return ResourceList(kind=kind, metadata=ListMetadata(self.path(*parts)), data=data)


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=JSON, headers=headers)


def nothing(status: int = 204) -> Response:
    return Response(status_code=status)
