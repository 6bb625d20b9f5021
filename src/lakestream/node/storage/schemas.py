"""Where the schemas of values come from."""

from lakestream.node.storage.backends import Backends
from lakestream.schemas.external.client import RegistryClient
from lakestream.schemas.external.source import ExternalSource
from lakestream.schemas.registry.source import RegistrySource
from lakestream.schemas.source import SchemaSource


def make_schemas(backends: Backends) -> SchemaSource:
    """Our own registry, unless the settings name another. Raises `InvalidSetting` if that cannot be."""
    if not backends.schemas.registry_url:
        return RegistrySource(backends.store)
    return ExternalSource(RegistryClient(backends.schemas), backends.schemas.latest_ms)
