"""Which Oxia: oxia://host:port/namespace."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from lakestream.errors import RequestError
from lakestream.runtime import format_host_port, parse_host_port

SCHEME: Final = "oxia"
DEFAULT_PORT: Final = 6648
DEFAULT_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class OxiaAddress:
    """`servers`: any of them says where each shard is."""

    servers: tuple[tuple[str, int], ...]
    namespace: str

    @property
    def place(self) -> str:
        hosts = ",".join(format_host_port(*server) for server in self.servers)
        return f"oxia://{hosts}/{self.namespace}"


def address_of(url: str) -> OxiaAddress:
    """Raises `RequestError`. Several servers are separated by commas."""
    parts = urlsplit(url)
    usage = "write oxia://host:port/namespace"
    if "@" in parts.netloc:
        raise RequestError(f"metadata_url: lakestream does not log in to Oxia; {usage}, without user and password")
    if parts.query or parts.fragment:
        raise RequestError(f"metadata_url: an Oxia server takes no options in its URL; {usage}")
    try:
        servers = tuple(_server(text) for text in parts.netloc.split(","))
    except ValueError as error:
        raise RequestError(f"metadata_url: {error}; {usage}") from error
    namespace = unquote(parts.path.strip("/"))
    if "/" in namespace:
        raise RequestError(f"metadata_url: a namespace of Oxia has no /; {usage}")
    return OxiaAddress(servers, namespace or DEFAULT_NAMESPACE)


def _server(text: str) -> tuple[str, int]:
    has_port = text.rpartition("]")[2].count(":") == 1
    return parse_host_port(text if has_port else f"{text}:{DEFAULT_PORT}")
