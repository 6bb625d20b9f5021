"""A topic's settings: their names, what they may be, what holds where nobody set one.

A topic keeps every setting it was given; those of this list mean something to the engine and are checked when they
are set, so whoever reads a topic's options later never meets one that cannot be.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from lakestream.errors import InvalidSetting
from lakestream.metadata.topic_tables import check_alias

T = TypeVar("T")

UNLIMITED: Final = -1
_LONG_MOST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """Times in milliseconds; -1 is without limit."""

    retention_ms: int
    """Older records leave the stream: its log start passes them. The table keeps them."""
    retention_bytes: int
    """Of one partition."""
    compacts: bool
    """Only the newest record of each key is kept."""
    deletes: bool
    """Records leave the stream by `retention_ms` and `retention_bytes`."""
    tombstone_ms: int
    """How long the newest record of a key stays that says that the key is gone, from when it is alone on."""
    dirty_ratio: float
    """The share of records that may be superseded before keys are folded."""
    table_formats: tuple[str, ...]
    table_commit_interval_ms: int
    """How old the table may be before the pipeline moves what is due; 0 is the pipeline's own interval."""
    table_freshness_ms: int
    """How old an engine that loads the table may find it; -1 is as the pipeline left it."""
    table_merges: bool
    """The pipeline merges the table's small files; otherwise that is its owner's affair."""
    table_retention_ms: int
    """Older rows leave the table, by whole files."""
    table_statistics_interval_ms: int
    """How far apart the pipeline counts the distinct keys of the table; -1 is never."""
    table_name: str
    """Another name for the table than the one that follows from the topic's; may be empty."""


class Option(NamedTuple):
    """`meaning` is what people read of it."""

    name: str
    default: str
    kind: str
    meaning: str


OPTIONS: Final = (
    Option("cleanup.policy", "delete", "list", "What becomes of old records: delete, compact, or both."),
    Option("delete.retention.ms", "86400000", "long", "How long a compacted topic keeps a tombstone."),
    Option("min.cleanable.dirty.ratio", "0.5", "double", "The share of new records at which a topic is compacted."),
    Option("retention.bytes", "-1", "long", "Bytes of a partition that the stream keeps; the table keeps its rows."),
    Option("retention.ms", "-1", "long", "How long the stream keeps a record; the table keeps its rows."),
    Option(
        "lakestream.table.commit.interval.ms",
        "0",
        "long",
        "How often rows are committed; 0: as for all topics.",
    ),
    Option("lakestream.table.formats", "iceberg", "list", "iceberg, or iceberg,delta: both over the same files."),
    Option(
        "lakestream.table.freshness.ms", "1000", "long", "How old a table may be that an engine loads; -1: any age."
    ),
    Option("lakestream.table.merge.enable", "true", "boolean", "Whether the pipeline merges small files of the table."),
    Option("lakestream.table.name", "", "string", "The table's name, if it shall not follow from the topic's."),
    Option("lakestream.table.retention.ms", "-1", "long", "How long the table keeps a row; -1: for ever."),
    Option(
        "lakestream.table.statistics.interval.ms",
        "-1",
        "long",
        "How often distinct keys are counted for engines' optimizers; -1: never.",
    ),
)

FIXED_OPTIONS: Final = ("lakestream.table.name",)
"""Settled when the topic is created."""


def topic_options(configs: Mapping[str, str]) -> TopicOptions:
    """Raises `InvalidSetting` with a sentence that names the setting."""
    return _options(frozenset(configs.items()))


@lru_cache(maxsize=1024)
def _options(settings: frozenset[tuple[str, str]]) -> TopicOptions:
    """Kept, for whoever looks after many topics asks at every step, and most are set alike."""
    configs = dict(settings)

    def get(name: str, parse: Callable[[str], T]) -> T:
        text = configs.get(name, _DEFAULTS[name])
        try:
            return parse(text)
        except ValueError as error:
            raise InvalidSetting(f"{name}={text} cannot be: {error}") from error

    policy = get("cleanup.policy", _policy)
    return TopicOptions(
        retention_ms=get("retention.ms", _limit),
        retention_bytes=get("retention.bytes", _limit),
        compacts="compact" in policy,
        deletes="delete" in policy,
        tombstone_ms=get("delete.retention.ms", _whole),
        dirty_ratio=get("min.cleanable.dirty.ratio", _ratio),
        table_formats=get("lakestream.table.formats", _formats),
        table_commit_interval_ms=get("lakestream.table.commit.interval.ms", _whole),
        table_freshness_ms=get("lakestream.table.freshness.ms", _limit),
        table_merges=get("lakestream.table.merge.enable", _switch),
        table_retention_ms=get("lakestream.table.retention.ms", _limit),
        table_statistics_interval_ms=get("lakestream.table.statistics.interval.ms", _limit),
        table_name=get("lakestream.table.name", check_alias),
    )


_DEFAULTS: Final = {option.name: option.default for option in OPTIONS}


def _limit(text: str) -> int:
    if text.strip() == str(UNLIMITED):
        return UNLIMITED
    return _whole(text)


def _whole(text: str) -> int:
    number = int(text) if text.strip().isascii() and text.strip().isdigit() else -1
    if not 0 <= number <= _LONG_MOST:
        raise ValueError("it takes a whole number that is not negative")
    return number


def _switch(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("it takes true or false")
    return word == "true"


def _ratio(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 1:
        raise ValueError("it takes a number from 0 to 1")
    return number


def _policy(text: str) -> frozenset[str]:
    return frozenset(_words(text, {"delete", "compact"}))


def _formats(text: str) -> tuple[str, ...]:
    found = _words(text, {"iceberg", "delta"})
    if "iceberg" not in found:
        raise ValueError("iceberg is always among them: the others follow it")
    return tuple(sorted(found, reverse=True))


def _words(text: str, known: set[str]) -> set[str]:
    found = {word.strip() for word in text.split(",")}
    if not found <= known:
        raise ValueError(f"it takes one or more of {', '.join(sorted(known))}, with commas between")
    return found
