"""A topic's settings: their names, what they may be, what holds where nobody set one.

Settings are checked when they are given (`check_settings`), so whoever reads a topic's options later never meets one
that cannot be.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeVar

from lakestream.errors import InvalidSetting
from lakestream.metadata.topics import option_list as values
from lakestream.metadata.topics.option_list import (
    DISK,
    INERT,
    MAX_MESSAGE_BYTES,
    NO_VALIDATION,
    OPTIONS,
    PROFILE,
    SCHEMA_VALIDATION,
    SETTLED,
    UNLIMITED,
)
from lakestream.metadata.topics.tables import check_alias
from lakestream.records import BatchCompression, BatchRules
from lakestream.records.compression import GZIP, LZ4, ZSTD

__all__ = [
    "DISK",
    "PROFILE",
    "UNLIMITED",
    "TopicOptions",
    "batch_rules",
    "check_settings",
    "is_disk",
    "topic_options",
]

T = TypeVar("T")


_DEFAULTS: Final = {option.name: option.default for option in OPTIONS}
_INERT: Final = {inert.option.name: inert for inert in INERT}
_SETTLED: Final = {option.name: option for option in SETTLED}
_RECORD_KEY: Final = "_key"
_LATEST: Final = "latest"
_LZ4_DEFAULT: Final = 9
"""Kafka's default, which there, too, stands for the fast mode."""


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
    profile: str
    """Where its WAL objects go: `diskless` or `disk`."""
    table_formats: tuple[str, ...]
    table_commit_interval_ms: int
    """How old the table may be before the pipeline moves what is due; 0 is the pipeline's own interval."""
    table_freshness_ms: int
    """How old an engine that loads the table may find it; -1 is as the pipeline left it."""
    table_inserts: bool
    """Rows that engines insert into the table become records of the stream."""
    table_merges: bool
    """The pipeline merges the table's small files; otherwise that is its owner's affair."""
    table_retention_ms: int
    """Older rows leave the table, by whole files."""
    table_statistics_interval_ms: int
    """How far apart the pipeline counts the distinct keys of the table; -1 is never."""
    table_transaction_wait_ms: int
    """How long rows wait for transactions to be whole in one snapshot."""
    table_updates: str
    """What becomes of a record that an engine has changed: `refuse` or `record`."""
    table_name: str
    """Another name for the table than the one that follows from the topic's; may be empty."""
    upsert: tuple[str, ...]
    """Key columns of the table of latest rows; none: there is no such table."""
    order_column: str
    """Of the table of latest rows: whose greatest value is the newest; may be empty."""
    transform: Literal["none", "debezium"]
    """What values are, for the table of latest rows."""
    dead_letters: bool
    """Records that cannot be decoded are in a table of their own, too."""
    max_message_bytes: int | None
    """The largest record batch; None: as the broker says."""
    append_time: bool
    """Records get the broker's time."""
    timestamp_before_ms: int
    timestamp_after_ms: int
    """How far a producer's timestamp may be from the broker's time."""
    compression: BatchCompression | None
    """How batches are kept and served; None: as they were sent, and uncompressed once they are rows."""
    schema_validation: str
    """What values must be to be taken: anything (`none`), framed with an id of the subject (`id`), and decodable by
    that schema (`full`)."""
    value_format: str = "raw"
    """What values are in the table: bytes (`raw`), or columns by the schema whose id is before them (`schema_id`), by
    the subject's latest (`latest`), as `json` or as a `string`."""
    value_subject: str = ""
    """Of the values' schemas; empty: the topic's own, `subject_of`."""
    value_message: str = ""
    """Which message of a Protobuf schema values without framing are; empty: its first."""
    key_format: str = "raw"
    """What keys are in the table beside their bytes; as `value_format`."""
    key_subject: str = ""
    key_validation: str = NO_VALIDATION
    is_table_first: bool = False
    """An engine made it with its table, so that engines may drop and rename both."""
    key: tuple[str, ...] = ()
    """The columns whose values are the key of a record that SQL writes."""


def topic_options(configs: Mapping[str, str]) -> TopicOptions:
    """Raises `InvalidSetting` with a sentence that names the setting."""
    return _options(frozenset(configs.items()))


@lru_cache(maxsize=1024)
def _options(settings: frozenset[tuple[str, str]]) -> TopicOptions:
    """Kept, for whoever looks after many topics asks at every step, and most are set alike."""
    configs = dict(settings)

    def get(name: str, parse: Callable[[str], T]) -> T:
        text = configs[name] if name in configs else _DEFAULTS[name]
        try:
            return parse(text)
        except ValueError as error:
            raise InvalidSetting(f"{name}={text} cannot be: {error}") from error

    codec = get("compression.type", values.codec)
    levels = {
        GZIP: get("compression.gzip.level", values.gzip_level),
        LZ4: get("compression.lz4.level", values.lz4_level),
        ZSTD: get("compression.zstd.level", values.zstd_level),
    }
    if levels[LZ4] == _LZ4_DEFAULT:
        levels[LZ4] = None
    policy = get("cleanup.policy", values.policy)
    transform = get("lakestream.value.transform", values.transform)
    return TopicOptions(
        retention_ms=get("retention.ms", values.limit),
        retention_bytes=get("retention.bytes", values.limit),
        compacts="compact" in policy,
        deletes="delete" in policy,
        tombstone_ms=get("delete.retention.ms", values.whole),
        dirty_ratio=get("min.cleanable.dirty.ratio", values.ratio),
        profile=get(PROFILE, values.profile),
        table_formats=get("lakestream.table.formats", values.formats),
        table_commit_interval_ms=get(values.COMMIT_INTERVAL, values.whole),
        table_freshness_ms=get("lakestream.table.freshness.ms", values.limit),
        table_inserts=get(values.INSERTS, values.switch),
        table_merges=get("lakestream.table.merge.enable", values.switch),
        table_retention_ms=get("lakestream.table.retention.ms", values.limit),
        table_statistics_interval_ms=get("lakestream.table.statistics.interval.ms", values.limit),
        table_transaction_wait_ms=get(values.TRANSACTION_WAIT, values.whole),
        table_updates=get("lakestream.table.updates", values.updates),
        table_name=get("lakestream.table.name", check_alias),
        upsert=_upsert(get("lakestream.table.upsert", values.columns), transform),
        order_column=get("lakestream.table.order.column", values.column),
        transform=transform,
        dead_letters=get("lakestream.errors", values.errors),
        max_message_bytes=get(MAX_MESSAGE_BYTES, values.max_message_bytes) if MAX_MESSAGE_BYTES in configs else None,
        append_time=get("message.timestamp.type", values.append_time),
        timestamp_before_ms=get("message.timestamp.before.max.ms", values.whole),
        timestamp_after_ms=get("message.timestamp.after.max.ms", values.whole),
        compression=None if codec is None else BatchCompression(codec, levels.get(codec)),
        schema_validation=get(SCHEMA_VALIDATION, values.schema_validation),
        value_format=get(values.VALUE_FORMAT, values.value_format),
        value_subject=get(values.VALUE_SUBJECT, values.subject),
        value_message=get(values.VALUE_MESSAGE, values.message),
        key_format=get(values.KEY_FORMAT, values.value_format),
        key_subject=get(values.KEY_SUBJECT, values.subject),
        key_validation=get(values.KEY_VALIDATION, values.schema_validation),
        is_table_first=get(values.STREAM, values.switch),
        key=get(values.KEY, values.words),
    )


def _upsert(keys: tuple[str, ...], transform: str) -> tuple[str, ...]:
    """Change events have rows, whether their key columns are named or not."""
    return keys or ((_RECORD_KEY,) if transform == "debezium" else ())


def check_settings(given: Mapping[str, str], present: Mapping[str, str]) -> None:
    """Whether a topic may be given these settings, where it has those. Raises `InvalidSetting` with a sentence."""
    options = topic_options(given)
    for what, validation, wanted, setting, formats in (
        ("values", options.schema_validation, options.value_format, SCHEMA_VALIDATION, values.VALUE_FORMAT),
        ("keys", options.key_validation, options.key_format, values.KEY_VALIDATION, values.KEY_FORMAT),
    ):
        if validation != NO_VALIDATION and wanted not in values.NAMING_FORMATS:
            raise InvalidSetting(
                f"{setting}={validation} cannot be with {formats}={wanted}: it is for {what} that begin with the id of"
                " their schema"
            )
    if options.value_message and options.value_format != _LATEST:
        raise InvalidSetting(
            f"{values.VALUE_MESSAGE} is for values without framing, with {values.VALUE_FORMAT}={_LATEST}: others say"
            " which message they are"
        )
    for name, value in given.items():
        if name in _DEFAULTS or name == MAX_MESSAGE_BYTES or present.get(name) == value:
            continue
        if name in _INERT:
            try:
                _INERT[name].check(value)
            except ValueError as error:
                raise InvalidSetting(f"{name}={value} cannot be: {error}") from error
        elif name not in _SETTLED:
            raise InvalidSetting(f"{name} is no setting of a topic; those that act are {', '.join(sorted(_DEFAULTS))}")
        elif value.strip() != _SETTLED[name].default:
            settled = _SETTLED[name]
            raise InvalidSetting(f"{name} is {settled.default} for every topic and cannot change. {settled.meaning}")


def is_setting(name: str) -> bool:
    """Whether a topic can have a setting of that name, whatever it does."""
    return name in _DEFAULTS or name in _INERT or name in _SETTLED or name == MAX_MESSAGE_BYTES


def is_disk(configs: Mapping[str, str]) -> bool:
    """Whether a topic with these settings has the disk profile, at the price that every produce request can pay."""
    return configs.get(PROFILE, "").strip() == DISK


def batch_rules(configs: Mapping[str, str], max_batch_bytes: int) -> BatchRules:
    """What a topic with these settings takes from producers, at the price that every produce request can pay.
    `max_batch_bytes`: where the topic does not say."""
    return _rules(frozenset(configs.items()), max_batch_bytes)


@lru_cache(maxsize=1024)
def _rules(settings: frozenset[tuple[str, str]], max_batch_bytes: int) -> BatchRules:
    options = _options(settings)
    return BatchRules(
        max_bytes=max_batch_bytes if options.max_message_bytes is None else options.max_message_bytes,
        needs_keys=options.compacts,
        before_ms=options.timestamp_before_ms,
        after_ms=options.timestamp_after_ms,
        append_time=options.append_time,
        compression=options.compression,
    )
