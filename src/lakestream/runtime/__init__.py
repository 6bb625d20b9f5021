"""Clock, random and ids, injected so that a simulator can own them."""

from lakestream.runtime.system import Clock, Runtime, system

__all__ = ["Clock", "Runtime", "system"]
