"""What the owner of a table or view has set in its properties. Whatever is there: reading it cannot fail, because who
reads it are everybody's commits. What makes no sense is read as Iceberg's Java library does. Pure."""

from collections.abc import Mapping
from typing import Final

from pyiceberg.io.pyarrow import match_metrics_mode
from pyiceberg.utils.properties import property_as_bool

from lakestream.objects.paths import is_inside
from lakestream.table.schema import full_metrics, shape_of

_METADATA_PATH: Final = "write.metadata.path"
_METRICS: Final = "write.metadata.metrics."


def is_on(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    """What is neither true nor false is false."""
    try:
        return property_as_bool(dict(properties), name, default)
    except ValueError:
        return False


def metadata_folder(location: str, properties: Mapping[str, str]) -> str:
    """PyIceberg's providers of locations would load a class that a property names, into this process. A folder outside
    of the location, which nobody can set any more, is not written to."""
    chosen = properties.get(_METADATA_PATH)
    return chosen.rstrip("/") if chosen and is_inside(chosen, location) else f"{location}/metadata"


def metrics_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """For files of a stream: with the bounds by which consumers find records and retention their age, always."""
    chosen = {name: mode for name, mode in properties.items() if name.startswith(_METRICS) and _is_mode(mode)}
    return chosen | full_metrics(shape_of(properties))


def _is_mode(text: str) -> bool:
    try:
        match_metrics_mode(text)
    except ValueError:
        return False
    return True
