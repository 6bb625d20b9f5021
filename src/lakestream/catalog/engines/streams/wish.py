"""What a CREATE TABLE says of the stream that its table is to be, in its properties. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lakestream.catalog.binding import ALIAS
from lakestream.catalog.engines.properties import is_on
from lakestream.errors import InvalidSetting, RequestError
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.topics.option_list import PROFILE, STREAM, VALUE_FORMAT, VALUE_SUBJECT
from lakestream.metadata.topics.options import is_disk, is_setting
from lakestream.metadata.topics.tables import DEFAULT_NAMESPACE, check_alias, table_name
from lakestream.schemas.deriving import FORMATS
from lakestream.schemas.growing import BY_ID, JSON, LATEST, codec_for
from lakestream.table.schema import TOPIC_PROPERTY

PARTITIONS: Final = "lakestream.partitions"
VALUE_SCHEMA: Final = "lakestream.value.schema"
_OURS: Final = "lakestream."
_SAID: Final = (PARTITIONS, VALUE_SCHEMA, TOPIC_PROPERTY)
_VALUE_FORMATS: Final = (BY_ID, LATEST, JSON)


@dataclass(frozen=True, slots=True)
class StreamWish:
    """`configs` are the topic's settings, `properties` what is left for the table's owner. `format`: of the schema that
    is derived, in the registry's word. `codec`: what fills the table's columns then."""

    topic: str
    partitions: int
    format: str
    codec: str
    subject: str
    configs: Mapping[str, str]
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StreamDefaults:
    """`partitions`: of a topic whose creator does not say. `has_disk`: whether there are disk stores."""

    partitions: int = 1
    has_disk: bool = True

    def check_profile(self, configs: Mapping[str, str]) -> None:
        """Raises `InvalidSetting` for a profile that the brokers do not have."""
        if is_disk(configs) and not self.has_disk:
            raise InvalidSetting(
                f"{PROFILE}=disk cannot be: the brokers have no disk stores. Name some in their settings, [disk] stores"
            )


STREAM_DEFAULTS: Final = StreamDefaults()


def defaults_of(namespace: Mapping[str, str]) -> dict[str, str]:
    """What a namespace's properties say for the tables that are made in it."""
    return {name: value for name, value in namespace.items() if name == STREAM or name in _SAID or is_setting(name)}


def read_wish(name: TableName, properties: Mapping[str, str], partitions: int) -> StreamWish | None:
    """None: it is to be an ordinary table. `partitions`: of a topic whose creator does not say. Raises `RequestError`
    with a sentence."""
    if not is_on(properties, STREAM, default=False):
        return None
    topic = properties.get(TOPIC_PROPERTY, "") or _topic_of(name)
    configs = {key: value for key, value in properties.items() if is_setting(key)} | {STREAM: "true"}
    if configs.pop(ALIAS, "") not in ("", name.name if name.namespace == DEFAULT_NAMESPACE else "", str(name)):
        raise InvalidSetting(f"leave {ALIAS} out: the table's name is the one that it is created under")
    kind, codec = _format(properties.get(VALUE_SCHEMA), configs.setdefault(VALUE_FORMAT, BY_ID))
    if table_name(topic) != name:
        configs[ALIAS] = _alias(name)
    return StreamWish(
        topic,
        _partitions(properties.get(PARTITIONS), partitions),
        kind,
        codec,
        configs.get(VALUE_SUBJECT) or f"{topic}-value",
        configs,
        _left(properties),
    )


def _topic_of(name: TableName) -> str:
    """A table in another namespace than that of topics is the topic of its dotted name, and has its rights."""
    return name.name if name.namespace == DEFAULT_NAMESPACE else str(name)


def _alias(name: TableName) -> str:
    try:
        return check_alias(str(name))
    except ValueError as error:
        raise RequestError(f"{name} cannot be a stream's table: {error}") from error


def _partitions(text: str | None, default: int) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()):
        raise InvalidSetting(f"{PARTITIONS}={text} cannot be: it takes a whole number from 1 on")
    return int(text)


def _format(said: str | None, value_format: str) -> tuple[str, str]:
    """Of the schema, and the codec of the table's values."""
    if value_format not in _VALUE_FORMATS:
        raise InvalidSetting(
            f"{VALUE_FORMAT} of a stream that begins with its table is one of {', '.join(_VALUE_FORMATS)}, not"
            f" {value_format}: its columns are those of a schema. Leave it out, or make the topic first"
        )
    default = "JSON" if value_format == JSON else FORMATS[0]
    found = default if said is None else said.strip().upper()
    if found not in FORMATS:
        known = ", ".join(each.lower() for each in FORMATS)
        raise InvalidSetting(f"{VALUE_SCHEMA}={said} cannot be: it takes one of {known}")
    codec = codec_for(value_format, found)
    if codec is None:
        raise InvalidSetting(f"{VALUE_SCHEMA}={said} cannot be: with {VALUE_FORMAT}={value_format} it is json")
    return found, codec


def _left(properties: Mapping[str, str]) -> dict[str, str]:
    left = {key: value for key, value in properties.items() if not (is_setting(key) or key in _SAID or key == STREAM)}
    strange = sorted(key for key in left if key.startswith(_OURS))
    if strange:
        raise InvalidSetting(
            f"{', '.join(strange)} is nothing that a stream's table can be given: it takes {STREAM},"
            f" {', '.join(_SAID)} and every setting of a topic"
        )
    return left
