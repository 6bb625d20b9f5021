"""What a topic's values may become in a table that has columns of them. Pure."""

from collections.abc import Mapping

from lakestream.errors import InvalidSetting, RegistryRefused
from lakestream.metadata.topics.aliases import resolved
from lakestream.metadata.topics.option_list import VALUE_FORMAT, VALUE_SUBJECT
from lakestream.metadata.topics.options import topic_options
from lakestream.metadata.topics.tables import value_subject
from lakestream.schemas.growing import RAW_FORMAT, fits
from lakestream.schemas.registry.model import parse_subject
from lakestream.table.shape import TableShape


def changes_values(present: Mapping[str, str], changed: Mapping[str, str]) -> bool:
    """Whether a change of settings is about them."""
    after = resolved(changed, present)
    return any(present.get(name) != after.get(name) for name in (VALUE_FORMAT, VALUE_SUBJECT))


def check_values(topic: str, present: Mapping[str, str], changed: Mapping[str, str], shape: TableShape | None) -> None:
    """Raises `InvalidSetting` for values that the table's columns, which stay, cannot take. Rows that are there were
    read by schemas of one context, whose ids are others in another one."""
    after = topic_options(resolved(changed, present))
    context = _context(topic, after.value_subject)
    if shape is None or not shape.codec or after.value_format == RAW_FORMAT:
        return
    if not fits(shape.codec, after.value_format):
        raise InvalidSetting(
            f"{VALUE_FORMAT}={after.value_format} cannot be: the columns of topic {topic}'s table are those of"
            f" {shape.codec}, for good; set raw, or make another topic"
        )
    if shape.schemas and context != _context(topic, topic_options(present).value_subject):
        raise InvalidSetting(
            f"{VALUE_SUBJECT}={after.value_subject} cannot be: the table of topic {topic} has schemas of another"
            " context, whose ids mean others there"
        )


def _context(topic: str, subject: str) -> str:
    try:
        return parse_subject(value_subject(topic, subject)).context
    except RegistryRefused as error:
        raise InvalidSetting(f"{VALUE_SUBJECT}={subject} cannot be: {error}") from error
