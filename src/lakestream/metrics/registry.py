"""The registry of a process."""

from prometheus_client import CollectorRegistry, disable_created_metrics


def new_registry() -> CollectorRegistry:
    """Without the times at which counters were made, which the library else adds to each: twice the text, and nobody
    asks for them."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    return CollectorRegistry()
