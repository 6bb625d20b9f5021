"""What a user says of a read or a write, checked once. Names are those of Spark's Kafka source where it has them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lakestream.errors import RequestError

EARLIEST: Final = -2
LATEST: Final = -1
MIB: Final = 1024 * 1024

_KAFKA: Final = "kafka."
_CATALOG: Final = "catalog."
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_FLAGS: Final = {"true": True, "false": False}
_KNOWN: Final = frozenset(
    {
        "topic",
        "path",
        "uri",
        "table",
        "startingoffsets",
        "endingoffsets",
        "startingtimestamp",
        "endingtimestamp",
        "snapshotid",
        "maxoffsetspertrigger",
        "maxrecordsperpartition",
        "maxbytesperpartition",
        "failondataloss",
        "filter",
        # Spark's own, which it hands on.
        "checkpointlocation",
        "queryname",
    }
)


@dataclass(frozen=True, slots=True)
class Position:
    """Where to start or to end. `by_partition` wins over `otherwise`; both may hold EARLIEST and LATEST. A timestamp
    wins over all: the first record that is not older."""

    otherwise: int
    by_partition: Mapping[int, int] = field(default_factory=dict)
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """`table` is None for the one that the cluster names. `kafka` are librdkafka's settings, `catalog` PyIceberg's,
    with `uri` among them."""

    topic: str
    table: str | None
    kafka: Mapping[str, str]
    catalog: Mapping[str, str]
    starting: Position | None = None
    ending: Position | None = None
    snapshot_id: int | None = None
    max_offsets_per_trigger: int | None = None
    max_records_per_partition: int = 250_000
    max_bytes_per_partition: int = 128 * MIB
    fail_on_data_loss: bool = True
    filter: str | None = None


def parse(given: Mapping[str, str]) -> Options:
    """Raises `RequestError` for what is missing, unknown or makes no sense. Names are told apart without case."""
    options = {name.lower(): value for name, value in given.items()}
    kafka = {name.removeprefix(_KAFKA): value for name, value in options.items() if name.startswith(_KAFKA)}
    catalog = {name.removeprefix(_CATALOG): value for name, value in options.items() if name.startswith(_CATALOG)}
    plain = {name: value for name, value in options.items() if not name.startswith((_KAFKA, _CATALOG))}
    if unknown := sorted(plain.keys() - _KNOWN):
        raise RequestError(f"unknown option {', '.join(unknown)}: the known ones are {', '.join(sorted(_KNOWN))}")
    topic = plain.get("topic") or plain.get("path")
    if not topic:
        raise RequestError('name the topic: .option("topic", …) or .load("<topic>")')
    if "bootstrap.servers" not in kafka:
        raise RequestError('say where the brokers are: .option("kafka.bootstrap.servers", "host:port")')
    if "uri" in plain:
        catalog["uri"] = plain["uri"]
    return Options(
        topic=topic,
        table=plain.get("table"),
        kafka=kafka,
        catalog=catalog,
        starting=_position(plain, "starting", topic, EARLIEST),
        ending=_position(plain, "ending", topic, LATEST),
        snapshot_id=_number(plain, "snapshotid"),
        max_offsets_per_trigger=_number(plain, "maxoffsetspertrigger", least=1),
        max_records_per_partition=_number(plain, "maxrecordsperpartition", least=1) or 250_000,
        max_bytes_per_partition=_number(plain, "maxbytesperpartition", least=1) or 128 * MIB,
        fail_on_data_loss=_flag(plain, "failondataloss", default=True),
        filter=plain.get("filter"),
    )


def _position(plain: Mapping[str, str], end: str, topic: str, missing: int) -> Position | None:
    timestamp_ms = _number(plain, f"{end}timestamp", least=0)
    text = plain.get(f"{end}offsets")
    if text is not None and timestamp_ms is not None:
        raise RequestError(f"give {end}Offsets or {end}Timestamp, not both")
    if timestamp_ms is not None:
        return Position(LATEST, timestamp_ms=timestamp_ms)
    if text is None:
        return None
    word = _WORDS.get(text.strip().lower())
    if word is not None:
        return Position(word)
    return Position(missing, _offsets(text, end, topic))


def _offsets(text: str, end: str, topic: str) -> dict[int, int]:
    """`{"0": 23}`, or as for Spark's Kafka source `{"<topic>": {"0": 23}}`; -2 is earliest, -1 latest."""
    example = f'{end}Offsets is earliest, latest or JSON such as {{"0": 23, "1": -2}}, not {text!r}'
    try:
        found = json.loads(text)
        found = found.get(topic, found) if isinstance(found, dict) else {}
        offsets = {int(partition): int(offset) for partition, offset in found.items()}
    except (ValueError, TypeError) as error:
        raise RequestError(example) from error
    if not offsets or any(partition < 0 or offset < EARLIEST for partition, offset in offsets.items()):
        raise RequestError(example)
    return offsets


def _number(plain: Mapping[str, str], name: str, *, least: int | None = None) -> int | None:
    text = plain.get(name)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError as error:
        raise RequestError(f"option {name} is a whole number, not {text!r}") from error
    if least is not None and number < least:
        raise RequestError(f"option {name} is at least {least}, not {number}")
    return number


def _flag(plain: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = plain.get(name)
    if text is None:
        return default
    if text.lower() not in _FLAGS:
        raise RequestError(f"option {name} is true or false, not {text!r}")
    return _FLAGS[text.lower()]
