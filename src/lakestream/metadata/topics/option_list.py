"""The settings that a topic can have: every one of Apache Kafka 4.3.1, and our own.

Each of them acts, or is taken and acts on nothing here, or is refused unless it says what holds for every topic.
"""

import re
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from lakestream.records.compression import GZIP, LZ4, SNAPPY, ZSTD

UNLIMITED: Final = -1
_INT_MOST: Final = (1 << 31) - 1
_LONG_MOST: Final = (1 << 63) - 1
_SUBJECT_MOST: Final = 1024
_THROTTLED: Final = re.compile(r"\*|(\d+:\d+(,\d+:\d+)*)?")
CODECS: Final = {"uncompressed": 0, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
AS_SENT: Final = "producer"
PROFILE: Final = "lakestream.profile"
SCHEMA_VALIDATION: Final = "lakestream.schema.validation"
NO_VALIDATION: Final = "none"
BY_ID: Final = "id"
FULL: Final = "full"
NAMING_FORMATS: Final = frozenset({"raw", "schema_id"})
"""Of values that may begin with the id of their schema."""
DISK: Final = "disk"
COMMIT_INTERVAL: Final = "lakestream.table.commit.interval.ms"
TRANSACTION_WAIT: Final = "lakestream.table.transaction.wait.ms"
ERRORS: Final = "lakestream.errors"
INSERTS: Final = "lakestream.table.inserts"
UPSERT: Final = "lakestream.table.upsert"
TRANSFORM: Final = "lakestream.value.transform"
VALUE_FORMAT: Final = "lakestream.value.format"
VALUE_SUBJECT: Final = "lakestream.value.subject"
VALUE_MESSAGE: Final = "lakestream.value.message"
STREAM: Final = "lakestream.stream"
KEY: Final = "lakestream.key"
KEY_FORMAT: Final = "lakestream.key.format"
KEY_SUBJECT: Final = "lakestream.key.subject"
KEY_VALIDATION: Final = "lakestream.key.schema.validation"


class Option(NamedTuple):
    """`meaning` is what people read of it."""

    name: str
    default: str
    kind: str
    meaning: str


class Inert(NamedTuple):
    """A setting that is taken and shown, and acts on nothing here; `check` raises `ValueError` for what Kafka refuses,
    too."""

    option: Option
    check: Callable[[str], object]


OPTIONS: Final = (
    Option("cleanup.policy", "delete", "list", "What becomes of old records: delete, compact, or both."),
    Option("compression.gzip.level", "-1", "int", "1 to 9, for compression.type=gzip; -1: gzip's own default."),
    Option("compression.lz4.level", "9", "int", "1 to 17, for compression.type=lz4; 9, as at Kafka, is the fast mode."),
    Option("compression.type", AS_SENT, "string", "How batches are kept and served; producer: as sent, rows plain."),
    Option("compression.zstd.level", "3", "int", "-131072 to 22, for compression.type=zstd."),
    Option("delete.retention.ms", "86400000", "long", "How long a compacted topic keeps a tombstone."),
    Option("message.timestamp.after.max.ms", "3600000", "long", "How far ahead of the broker's a timestamp may be."),
    Option("message.timestamp.before.max.ms", str(_LONG_MOST), "long", "How far behind the broker's it may be."),
    Option(
        "message.timestamp.type", "CreateTime", "string", "CreateTime: the producer's; LogAppendTime: the broker's."
    ),
    Option("min.cleanable.dirty.ratio", "0.5", "double", "The share of new records at which a topic is compacted."),
    Option("retention.bytes", "-1", "long", "Bytes of a partition that the stream keeps; the table keeps its rows."),
    Option("retention.ms", "-1", "long", "How long the stream keeps a record; the table keeps its rows."),
    Option(
        PROFILE,
        "diskless",
        "string",
        "Where records wait for the table: diskless, in the bucket; disk, in low-latency stores.",
    ),
    Option(KEY, "", "string", "The columns whose values are the key of a record that SQL writes, with commas between."),
    Option(STREAM, "false", "boolean", "Whether DROP TABLE and RENAME TABLE are the topic's affair, too."),
    Option(
        SCHEMA_VALIDATION,
        NO_VALIDATION,
        "string",
        "What values must be to be taken: anything; framed with an id of the subject (id); and decodable by it (full).",
    ),
    Option(
        ERRORS,
        "dlq",
        "string",
        "Records that do not fit their schema: dlq, also in a table of dead letters; none, in the stream's table only.",
    ),
    Option(
        COMMIT_INTERVAL,
        "0",
        "long",
        "How often rows are committed; 0: as for all topics.",
    ),
    Option("lakestream.table.formats", "iceberg", "list", "iceberg, or iceberg,delta: both over the same files."),
    Option(
        "lakestream.table.freshness.ms", "1000", "long", "How old a table may be that an engine loads; -1: any age."
    ),
    Option(INSERTS, "false", "boolean", "Whether rows that engines INSERT become records."),
    Option("lakestream.table.merge.enable", "true", "boolean", "Whether the pipeline merges small files of the table."),
    Option("lakestream.table.name", "", "string", "The table's name, if it shall not follow from the topic's."),
    Option(
        "lakestream.table.order.column",
        "",
        "string",
        "Of the latest rows: the column whose greatest value is newest, if partitions do not tell; empty: they do.",
    ),
    Option("lakestream.table.retention.ms", "-1", "long", "How long the table keeps a row; -1: for ever."),
    Option(
        "lakestream.table.statistics.interval.ms",
        "-1",
        "long",
        "How often distinct keys are counted for engines' optimizers; -1: never.",
    ),
    Option(
        TRANSACTION_WAIT,
        "10000",
        "long",
        "How long rows wait for transactions to be whole in one snapshot, before they come in parts.",
    ),
    Option(
        "lakestream.table.updates",
        "refuse",
        "string",
        "What an engine's change of key, value or headers is: refused, or with `record` the record from then on.",
    ),
    Option(
        UPSERT,
        "",
        "list",
        "Key columns of a second table, <table>__latest, with the newest row of each key; _key: the record's key.",
    ),
    Option(
        TRANSFORM,
        "none",
        "string",
        "What values are: none; debezium, change events, of which <table>__latest has the rows.",
    ),
    Option(
        VALUE_FORMAT,
        "raw",
        "string",
        "What values are in the table: raw bytes, or columns by schema_id, latest, json or string.",
    ),
    Option(VALUE_SUBJECT, "", "string", "The subject of the values' schemas; empty: the topic's name with -value."),
    Option(
        VALUE_MESSAGE,
        "",
        "string",
        "Which message of a Protobuf schema values without framing are; empty: the first that no other refers to.",
    ),
    Option(
        KEY_FORMAT,
        "raw",
        "string",
        "What keys are in the table: raw bytes, or also the column _typed_key by schema_id, latest, json or string.",
    ),
    Option(KEY_SUBJECT, "", "string", "The subject of the keys' schemas; empty: the topic's name with -key."),
    Option(KEY_VALIDATION, NO_VALIDATION, "string", "What keys must be to be taken: as lakestream.schema.validation."),
)
"""Those that act. `max.message.bytes` does, too, and has the broker's `message.max.bytes` as its default."""

MAX_MESSAGE_BYTES: Final = "max.message.bytes"

FIXED_OPTIONS: Final = ("lakestream.table.name",)
"""Settled when the topic is created."""


def number(low: int, high: int = _LONG_MOST) -> Callable[[str], int]:
    """A parser of whole numbers from low to high."""

    def parse(text: str) -> int:
        word = text.strip()
        found = int(word) if re.fullmatch(r"[+-]?[0-9]{1,19}", word) else low - 1
        if not low <= found <= high:
            upper = "" if high in (_INT_MOST, _LONG_MOST) else f" to {high}"
            raise ValueError(f"it takes a whole number from {low}{upper}{'' if upper else ' on'}")
        return found

    return parse


limit: Final = number(UNLIMITED)
whole: Final = number(0)
max_message_bytes: Final = number(0, _INT_MOST)
lz4_level: Final = number(1, 17)
zstd_level: Final = number(-131072, 22)


def gzip_level(text: str) -> int | None:
    """None: gzip's own default."""
    return None if text.strip() == "-1" else number(1, 9)(text)


def switch(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("it takes true or false")
    return word == "true"


def ratio(text: str) -> float:
    found = float(text)
    if not 0 <= found <= 1:
        raise ValueError("it takes a number from 0 to 1")
    return found


def policy(text: str) -> frozenset[str]:
    return frozenset(_words(text, {"delete", "compact"}))


def formats(text: str) -> tuple[str, ...]:
    found = _words(text, {"iceberg", "delta"})
    if "iceberg" not in found:
        raise ValueError("iceberg is always among them: the others follow it")
    return tuple(sorted(found, reverse=True))


def append_time(text: str) -> bool:
    return _one_of(text, ("CreateTime", "LogAppendTime")) == "LogAppendTime"


def codec(text: str) -> int | None:
    """None: as the producer sent it."""
    return CODECS.get(_one_of(text, (AS_SENT, *CODECS)))


def profile(text: str) -> str:
    return _one_of(text, ("diskless", DISK))


def updates(text: str) -> str:
    return _one_of(text, ("refuse", "record"))


def schema_validation(text: str) -> str:
    return _one_of(text, (NO_VALIDATION, BY_ID, FULL))


def errors(text: str) -> bool:
    """Whether there are dead letters."""
    return _one_of(text, ("dlq", "none")) == "dlq"


def transform(text: str) -> Literal["none", "debezium"]:
    return "debezium" if _one_of(text, ("none", "debezium")) == "debezium" else "none"


def columns(text: str) -> tuple[str, ...]:
    """Names with commas between, each once; none at all if the text is empty."""
    found = tuple(word.strip() for word in text.split(",")) if text.strip() else ()
    if not all(found) or len(set(found)) < len(found):
        raise ValueError("it takes names of columns, each once, with commas between")
    return found


def column(text: str) -> str:
    """One, or none."""
    if len(columns(text)) > 1:
        raise ValueError("it takes the name of one column")
    return text.strip()


def value_format(text: str) -> str:
    return _one_of(text, ("raw", "schema_id", "latest", "json", "string"))


def subject(text: str) -> str:
    found = text.strip()
    if not found.isprintable() or len(found) > _SUBJECT_MOST:
        raise ValueError(f"it takes a subject of the schema registry, of at most {_SUBJECT_MOST} printable characters")
    return found


def message(text: str) -> str:
    """The full name of a message of Protobuf, or nothing."""
    found = text.strip()
    if found and not all(part.isidentifier() for part in found.split(".")):
        raise ValueError("it takes the full name of a message, like com.example.Order")
    return found


def words(text: str) -> tuple[str, ...]:
    """What stands between commas, in order."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _throttled(text: str) -> None:
    if not _THROTTLED.fullmatch(text.replace(" ", "")):
        raise ValueError("it takes * or partition:broker pairs, with commas between")


def _one_of(text: str, known: tuple[str, ...]) -> str:
    if text.strip() not in known:
        raise ValueError(f"it takes one of {', '.join(known)}")
    return text.strip()


def _words(text: str, known: set[str]) -> set[str]:
    found = {word.strip() for word in text.split(",")}
    if not found <= known:
        raise ValueError(f"it takes one or more of {', '.join(sorted(known))}, with commas between")
    return found


_SEGMENTS: Final = "Without effect: there are no segment files."
_REPLICAS: Final = "Without effect: copies are the object store's."
_SYNCED: Final = "Without effect: every object is durable before an ack."

INERT: Final = (
    Inert(Option("file.delete.delay.ms", "60000", "long", _SEGMENTS), whole),
    Inert(Option("flush.messages", str(_LONG_MOST), "long", _SYNCED), number(1)),
    Inert(Option("flush.ms", str(_LONG_MOST), "long", _SYNCED), whole),
    Inert(Option("follower.replication.throttled.replicas", "", "list", _REPLICAS), _throttled),
    Inert(Option("index.interval.bytes", "4096", "int", _SEGMENTS), number(0, _INT_MOST)),
    Inert(Option("leader.replication.throttled.replicas", "", "list", _REPLICAS), _throttled),
    Inert(Option("min.insync.replicas", "1", "int", _REPLICAS), number(1, _INT_MOST)),
    Inert(Option("preallocate", "false", "boolean", _SEGMENTS), switch),
    Inert(Option("segment.bytes", "1073741824", "int", _SEGMENTS), number(1024 * 1024, _INT_MOST)),
    Inert(Option("segment.index.bytes", "10485760", "int", _SEGMENTS), number(4, _INT_MOST)),
    Inert(Option("segment.jitter.ms", "0", "long", _SEGMENTS), whole),
    Inert(Option("segment.ms", "604800000", "long", _SEGMENTS), number(1)),
    Inert(
        Option("unclean.leader.election.enable", "false", "boolean", "Without effect: there are no leaders."), switch
    ),
)

SETTLED: Final = (
    Option("local.retention.bytes", "-2", "long", "There is no tiered storage: all of a stream is in the bucket."),
    Option("local.retention.ms", "-2", "long", "There is no tiered storage: all of a stream is in the bucket."),
    Option("max.compaction.lag.ms", str(_LONG_MOST), "long", "Keys are folded by min.cleanable.dirty.ratio alone."),
    Option("min.compaction.lag.ms", "0", "long", "Keys are folded by min.cleanable.dirty.ratio alone."),
    Option("remote.log.copy.disable", "false", "boolean", "There is no tiered storage."),
    Option("remote.log.delete.on.disable", "false", "boolean", "There is no tiered storage."),
    Option(
        "remote.storage.enable", "false", "boolean", "There is no tiered storage: all of a stream is in the bucket."
    ),
)
"""Those that are the same for every topic: another value would promise what is not kept, so it is refused."""
