"""Clock, random and ids, injected so that a simulator can own them; addresses as people write them."""

from lakestream.runtime.addresses import format_host_port, is_everywhere, parse_host_port
from lakestream.runtime.system import Clock, Runtime, system

__all__ = ["Clock", "Runtime", "format_host_port", "is_everywhere", "parse_host_port", "system"]
