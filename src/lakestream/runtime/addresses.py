"""Addresses as people write them: host:port, with brackets around a host that has colons."""

from typing import Final

_EVERYWHERE: Final = frozenset({"0.0.0.0", "::", ""})
"""Hosts that one listens on, and that nobody can call."""


def parse_host_port(text: str) -> tuple[str, int]:
    """Raises `ValueError` with a sentence if a client could not call it."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536 or " " in host:
        raise ValueError(f"{text!r} is no address: write host:port")
    if is_everywhere(host):
        raise ValueError(f"{text!r} is an address to listen on: name one that others can reach")
    return host, int(port)


def is_everywhere(host: str) -> bool:
    return host in _EVERYWHERE


def format_host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
