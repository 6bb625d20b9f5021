"""Settings as Confluent, Redpanda and AutoMQ call them, which become ours when they are given. Pure.

Only what means the same is taken. A name that is none of these is no setting, under their prefixes as elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from lakestream.errors import InvalidSetting
from lakestream.metadata.topics.option_list import (
    BY_ID,
    COMMIT_INTERVAL,
    ERRORS,
    KEY_FORMAT,
    KEY_SUBJECT,
    KEY_VALIDATION,
    NO_VALIDATION,
    SCHEMA_VALIDATION,
    TRANSFORM,
    UPSERT,
    VALUE_FORMAT,
    VALUE_MESSAGE,
    VALUE_SUBJECT,
    switch,
)

_REDPANDA_MODES: Final = {
    "key_value": "raw",
    "value_schema_id_prefix": "schema_id",
    "value_schema_latest": "latest",
}
_REDPANDA_LATEST: Final = {"subject": VALUE_SUBJECT, "protobuf_name": VALUE_MESSAGE}
_AUTOMQ_TYPES: Final = {"raw": "raw", "string": "string", "by_schema_id": "schema_id", "by_latest_schema": "latest"}
_AUTOMQ: Final = "automq.table.topic."


def _redpanda_mode(text: str) -> dict[str, str]:
    """`value_schema_latest:subject=…,protobuf_name=…` says the subject and the message, too."""
    mode, _, more = text.strip().partition(":")
    if mode not in _REDPANDA_MODES:
        raise ValueError(f"it takes one of {', '.join(_REDPANDA_MODES)}: every topic here has its table")
    found = {VALUE_FORMAT: _REDPANDA_MODES[mode]}
    for part in filter(None, more.split(",")):
        name, _, value = part.partition("=")
        if mode != "value_schema_latest" or name.strip() not in _REDPANDA_LATEST or not value.strip():
            raise ValueError(
                "only value_schema_latest takes more, which is subject=<name> and protobuf_name=<message>, and not"
                f" {part!r}"
            )
        found[_REDPANDA_LATEST[name.strip()]] = value.strip()
    return found


def _automq_value(text: str) -> dict[str, str]:
    if text.strip() not in _AUTOMQ_TYPES:
        raise ValueError(f"it takes one of {', '.join(_AUTOMQ_TYPES)}")
    return {VALUE_FORMAT: _AUTOMQ_TYPES[text.strip()]}


def _automq_key(text: str) -> dict[str, str]:
    if text.strip() not in _AUTOMQ_TYPES:
        raise ValueError(f"it takes one of {', '.join(_AUTOMQ_TYPES)}")
    return {KEY_FORMAT: _AUTOMQ_TYPES[text.strip()]}


def _automq_enable(text: str) -> dict[str, str]:
    if text.strip().lower() != "true":
        raise ValueError("every topic here has its table: it takes true")
    return {}


def _validation(text: str) -> dict[str, str]:
    return {SCHEMA_VALIDATION: BY_ID if switch(text) else NO_VALIDATION}


def _key_validation(text: str) -> dict[str, str]:
    return {KEY_VALIDATION: BY_ID if switch(text) else NO_VALIDATION}


def _naming(text: str) -> dict[str, str]:
    """Confluent's class names are long, Redpanda's are short."""
    if text.strip().rpartition(".")[2] != "TopicNameStrategy":
        raise ValueError(f"it takes TopicNameStrategy; {VALUE_SUBJECT} names any other subject")
    return {}


def _automq_transform(text: str) -> dict[str, str]:
    """Fields of the value are columns here as they are, which AutoMQ calls flat."""
    known = {"none": "none", "flatten": "none", "flatten_debezium": "debezium"}
    if text.strip() not in known:
        raise ValueError(f"it takes one of {', '.join(known)}")
    return {TRANSFORM: known[text.strip()]}


def _automq_keys(text: str) -> dict[str, str]:
    """Names in brackets, or without."""
    return {UPSERT: text.strip().removeprefix("[").removesuffix("]")}


def _automq_upsert(text: str) -> dict[str, str]:
    """Which columns name a row, another setting says."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("it takes true, with automq.table.topic.id.columns, or false")
    return {} if word == "true" else {UPSERT: ""}


def _automq_errors(text: str) -> dict[str, str]:
    if text.strip() not in ("invalid_data", "all"):
        raise ValueError("no record stops a table here: it takes invalid_data or all, which are the same")
    return {ERRORS: "dlq"}


def _redpanda_delete(text: str) -> dict[str, str]:
    if switch(text):
        raise ValueError("a table stays when its topic is deleted, and is its owner's then: it takes false")
    return {}


def _redpanda_partitions(text: str) -> dict[str, str]:
    if text.replace(" ", "") != "()":
        raise ValueError("engines partition a table (ALTER TABLE … ADD PARTITION FIELD): it takes ()")
    return {}


def _redpanda_errors(text: str) -> dict[str, str]:
    known = {"drop": "none", "dlq_table": "dlq"}
    if text.strip() not in known:
        raise ValueError(f"it takes one of {', '.join(known)}")
    return {ERRORS: known[text.strip()]}


def _renamed(name: str) -> Callable[[str], dict[str, str]]:
    return lambda text: {name: text}


ALIASES: Final[Mapping[str, Callable[[str], dict[str, str]]]] = {
    "redpanda.iceberg.mode": _redpanda_mode,
    "redpanda.iceberg.delete": _redpanda_delete,
    "redpanda.iceberg.partition.spec": _redpanda_partitions,
    "redpanda.iceberg.target.lag.ms": _renamed(COMMIT_INTERVAL),
    f"{_AUTOMQ}enable": _automq_enable,
    f"{_AUTOMQ}commit.interval.ms": _renamed(COMMIT_INTERVAL),
    f"{_AUTOMQ}convert.value.type": _automq_value,
    f"{_AUTOMQ}convert.value.by_latest_schema.subject": _renamed(VALUE_SUBJECT),
    f"{_AUTOMQ}convert.value.by_latest_schema.message.full.name": _renamed(VALUE_MESSAGE),
    f"{_AUTOMQ}convert.key.type": _automq_key,
    f"{_AUTOMQ}convert.key.by_latest_schema.subject": _renamed(KEY_SUBJECT),
    "confluent.value.schema.validation": _validation,
    "confluent.key.schema.validation": _key_validation,
    "confluent.value.subject.name.strategy": _naming,
    "confluent.key.subject.name.strategy": _naming,
    "redpanda.value.schema.id.validation": _validation,
    "redpanda.key.schema.id.validation": _key_validation,
    "redpanda.value.subject.name.strategy": _naming,
    "redpanda.key.subject.name.strategy": _naming,
    f"{_AUTOMQ}transform.value.type": _automq_transform,
    f"{_AUTOMQ}id.columns": _automq_keys,
    f"{_AUTOMQ}upsert.enable": _automq_upsert,
    f"{_AUTOMQ}errors.tolerance": _automq_errors,
    "redpanda.iceberg.invalid.record.action": _redpanda_errors,
}
"""Each with what its value means in our settings. Raises ValueError for what cannot be."""


def resolved(configs: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str]:
    """The settings under our names; `present` are those that the topic has, which aliases replace. Raises
    `InvalidSetting` for what cannot be, and where two that are given differ."""
    found = {name: value for name, value in configs.items() if name not in ALIASES}
    given = {name: value for name, value in found.items() if present.get(name) != value}
    for alias, name, value in _meant(configs):
        if given.setdefault(name, value).strip() != value.strip():
            raise InvalidSetting(
                f"{alias}={configs[alias]} means {name}={value}, and {name}={given[name]} is given, too"
            )
    return found | given


def _meant(configs: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for alias in sorted(configs.keys() & ALIASES.keys()):
        try:
            meant = ALIASES[alias](configs[alias])
        except ValueError as error:
            raise InvalidSetting(f"{alias}={configs[alias]} cannot be: {error}") from error
        for name, value in meant.items():
            yield alias, name, value
