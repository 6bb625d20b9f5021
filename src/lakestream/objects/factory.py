"""From a URL to a store. Also called by workers that have no node."""

from urllib.parse import urlsplit

from lakestream.errors import RequestError
from lakestream.metrics import ObjectMetrics
from lakestream.objects.cloud.remote import RemoteObjects
from lakestream.objects.local.store import LocalObjects
from lakestream.objects.measured import MeasuredObjects
from lakestream.objects.memory import MemoryObjects
from lakestream.objects.steady import SteadyObjects
from lakestream.objects.store import ObjectStore
from lakestream.runtime import system

_named: dict[str, MemoryObjects] = {}
"""Stores in memory by URL, so that everybody in this process who opens `memory://name` sees the same objects."""


def open(url: str, *, ends_at_once: bool = False, metrics: ObjectMetrics | None = None) -> ObjectStore:
    """The store at a URL: file:///absolute/path, memory://name, s3://, gs:// or az://bucket/prefix. `metrics` counts
    what is asked of it.

    `ends_at_once`: this process ends with `os._exit`, as Spark's Python workers do, and so may read in a way after
    which others cannot end."""
    counted = metrics or ObjectMetrics()
    store = _bare(url, ends_at_once=ends_at_once)
    measured = MeasuredObjects(store, counted)
    return SteadyObjects(measured, system(), counted) if isinstance(store, RemoteObjects) else measured


def _bare(url: str, *, ends_at_once: bool) -> ObjectStore:
    parts = urlsplit(url)
    match parts.scheme:
        case "file" if not parts.netloc and parts.path.startswith("/"):
            return LocalObjects(url.removeprefix("file://"))
        case "memory":
            url = f"memory://{(parts.netloc + parts.path).strip('/')}"
            if url not in _named:
                _named[url] = MemoryObjects(system().clock, url)
            return _named[url]
        case "s3" | "gs" | "az" if parts.netloc:
            return RemoteObjects(url, ends_at_once=ends_at_once)
    raise RequestError(f"{url!r} is no bucket: use file:///absolute/path, s3://bucket, gs://bucket or az://container")
