"""What makes a store at the other end of a network a steady one: retries, a second request for what is late, and fewer
requests when it asks for fewer."""

from lakestream.objects.steady.store import Patience, SteadyObjects

__all__ = ["Patience", "SteadyObjects"]
