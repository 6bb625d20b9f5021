"""Where the schemas of values come from."""

from lakestream.node.storage.backends import Backends
from lakestream.schemas.registry.source import RegistrySource
from lakestream.schemas.source import SchemaSource


def make_schemas(backends: Backends) -> SchemaSource:
    return RegistrySource(backends.store)
