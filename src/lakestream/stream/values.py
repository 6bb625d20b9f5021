"""What a topic's values and keys may become in a table that has columns of them. Pure."""

from collections.abc import Mapping, Sequence

from lakestream.errors import InvalidSetting, RegistryRefused
from lakestream.metadata.topics.aliases import resolved
from lakestream.metadata.topics.option_list import (
    INSERTS,
    KEY_FORMAT,
    KEY_SUBJECT,
    TRANSFORM,
    UPSERT,
    VALUE_FORMAT,
    VALUE_MESSAGE,
    VALUE_SUBJECT,
)
from lakestream.metadata.topics.options import topic_options
from lakestream.metadata.topics.tables import key_subject, value_subject
from lakestream.schemas.growing import RAW_FORMAT, fits
from lakestream.schemas.registry.model import parse_subject
from lakestream.table.shape import TableShape, key_shape


def changes_values(present: Mapping[str, str], changed: Mapping[str, str]) -> bool:
    """Whether a change of settings is about them."""
    after = resolved(changed, present)
    names = (VALUE_FORMAT, VALUE_SUBJECT, VALUE_MESSAGE, KEY_FORMAT, KEY_SUBJECT)
    return any(present.get(name) != after.get(name) for name in names)


def check_values(topic: str, present: Mapping[str, str], changed: Mapping[str, str], shape: TableShape | None) -> None:
    """Raises `InvalidSetting` for values or keys that the table's columns, which stay, cannot take. Rows that are there
    were read by schemas of one context, whose ids are others in another one."""
    before, after = topic_options(present), topic_options(resolved(changed, present))
    subjects = [value_subject(topic, each.value_subject) for each in (before, after)]
    _check(topic, shape, VALUE_FORMAT, after.value_format, VALUE_SUBJECT, subjects)
    first = next((each for each in ([] if shape is None else shape.schemas) if not each.trouble), None)
    if first is not None and after.value_message not in ("", first.message):
        raise InvalidSetting(
            f"{VALUE_MESSAGE}={after.value_message} cannot be: the columns of topic {topic}'s table are those of"
            f" {first.message or 'another message'}, for good; make another topic"
        )
    keys = None if shape is None else key_shape(shape)
    subjects = [key_subject(topic, each.key_subject) for each in (before, after)]
    _check(topic, keys, KEY_FORMAT, after.key_format, KEY_SUBJECT, subjects)


def check_external(present: Mapping[str, str], changed: Mapping[str, str]) -> None:
    """Raises `InvalidSetting` for what a change newly asks for and only the catalog of Lakestream itself can do: it
    makes the tables, and sees the commits of engines before they are made."""
    before, after = topic_options(present), topic_options(resolved(changed, present))
    asked = (
        (TRANSFORM, after.transform == "debezium", before.transform == "debezium", "makes no tables beside a stream's"),
        (UPSERT, bool(after.upsert), after.upsert == before.upsert, "makes no tables beside a stream's"),
        (INSERTS, after.table_inserts, before.table_inserts, "hears of no commit before it is made"),
    )
    for setting, is_asked, was_asked, why in asked:
        if is_asked and not was_asked:
            raise InvalidSetting(
                f"{setting} cannot be with an external catalog, where Lakestream {why}: leave the setting out, or keep"
                " the tables in Lakestream's own catalog"
            )


def _check(
    topic: str, shape: TableShape | None, setting: str, wanted: str, subject_setting: str, subjects: Sequence[str]
) -> None:
    before, after = (_context(subject_setting, subject) for subject in subjects)
    if shape is None or not shape.codec or wanted == RAW_FORMAT:
        return
    if not fits(shape.codec, wanted):
        raise InvalidSetting(
            f"{setting}={wanted} cannot be: the columns of topic {topic}'s table are those of {shape.codec}, for good;"
            " set raw, or make another topic"
        )
    if shape.schemas and before != after:
        raise InvalidSetting(
            f"{subject_setting}={subjects[-1]} cannot be: the table of topic {topic} has schemas of another context,"
            " whose ids mean others there"
        )


def _context(setting: str, subject: str) -> str:
    try:
        return parse_subject(subject).context
    except RegistryRefused as error:
        raise InvalidSetting(f"{setting}={subject} cannot be: {error}") from error
