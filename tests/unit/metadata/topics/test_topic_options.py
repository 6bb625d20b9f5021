"""What a topic may be told, and what it says of what it cannot."""

import pytest
from support.clients.apache_kafka import KAFKA_TOPIC_CONFIGS

from lakestream.errors import InvalidSetting
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.aliases import resolved
from lakestream.metadata.topics.list import Topics
from lakestream.metadata.topics.option_list import INERT, MAX_MESSAGE_BYTES, OPTIONS, SETTLED
from lakestream.metadata.topics.options import batch_rules, check_settings, topic_options
from lakestream.records import BatchCompression, BatchRules
from lakestream.runtime import system
from lakestream.stream import StreamSettings
from lakestream.stream.configs import topic_configs


def test_without_settings_every_default_holds() -> None:
    options = topic_options({})
    assert (options.retention_ms, options.compacts, options.deletes) == (-1, False, True)
    assert options == topic_options({option.name: option.default for option in OPTIONS})


def test_every_setting_of_apache_kafka_has_its_place_and_its_default() -> None:
    ours = {config.name: config.value for config in topic_configs({}, StreamSettings().max_batch_bytes)}
    differ = {name for name, value in KAFKA_TOPIC_CONFIGS.items() if ours[name] != value}
    assert differ == {"retention.ms"}, "a stream that is a table keeps its records"
    assert {name for name in ours.keys() - KAFKA_TOPIC_CONFIGS.keys() if not name.startswith("lakestream.")} == set()


def test_a_setting_acts_or_is_inert_or_is_refused() -> None:
    acting = {option.name for option in OPTIONS} | {MAX_MESSAGE_BYTES}
    inert, settled = {each.option.name for each in INERT}, {option.name for option in SETTLED}
    assert KAFKA_TOPIC_CONFIGS.keys() <= acting | inert | settled
    assert len(acting) + len(inert) + len(settled) == len(acting | inert | settled)
    for name in inert:
        check_settings({name: KAFKA_TOPIC_CONFIGS[name]}, {})
    for option in SETTLED:
        check_settings({option.name: option.default}, {})
        with pytest.raises(InvalidSetting, match="for every topic"):
            check_settings({option.name: "1"}, {})


def test_what_a_topic_was_given_by_an_older_version_stays() -> None:
    old = {"no.such": "1", "segment.bytes": "what ever"}
    assert topic_options(old) == topic_options({})
    check_settings(old | {"retention.ms": "5"}, old)
    with pytest.raises(InvalidSetting, match=r"segment\.bytes=other"):
        check_settings(old | {"segment.bytes": "other"}, old)


def test_rules_follow_from_settings() -> None:
    assert batch_rules({}, 77) == BatchRules(77, after_ms=3_600_000)
    settings = {"max.message.bytes": "9", "cleanup.policy": "compact", "compression.type": "lz4"}
    assert batch_rules(settings, 77) == BatchRules(
        9, needs_keys=True, after_ms=3_600_000, compression=BatchCompression(3, None)
    )
    settings = {"compression.type": "gzip", "compression.gzip.level": "9", "message.timestamp.type": "LogAppendTime"}
    rules = batch_rules(settings, 77)
    assert (rules.compression, rules.append_time) == (BatchCompression(1, 9), True)


def test_both_policies_and_both_formats() -> None:
    options = topic_options({"cleanup.policy": "compact, delete", "lakestream.table.formats": "delta,iceberg"})
    assert options.compacts
    assert options.deletes
    assert options.table_formats == ("iceberg", "delta")


def test_switches_are_true_or_false_in_any_case() -> None:
    assert topic_options({}).table_merges
    assert topic_options({"lakestream.table.merge.enable": " TRUE "}).table_merges
    assert not topic_options({"lakestream.table.merge.enable": "False"}).table_merges


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("retention.bytes", "1.5"),
        ("retention.bytes", str(1 << 63)),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", ""),
        ("lakestream.table.formats", "delta"),
        ("lakestream.table.formats", "iceberg,hudi"),
        ("lakestream.table.commit.interval.ms", "-1"),
        ("lakestream.table.merge.enable", "perhaps"),
        ("max.message.bytes", str(1 << 31)),
        ("compression.type", "none"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "18"),
        ("message.timestamp.type", "logappendtime"),
        ("message.timestamp.before.max.ms", "-1"),
        ("min.insync.replicas", "0"),
        ("leader.replication.throttled.replicas", "all"),
        ("min.compaction.lag.ms", "5"),
        ("no.such", "1"),
    ],
)
async def test_what_cannot_be_is_refused_by_name_and_nothing_is_made(name: str, value: str) -> None:
    topics = Topics(MemoryStore(system()), system())
    with pytest.raises(InvalidSetting, match=name):
        await topics.create("t", 1, {name: value})
    assert await topics.list() == []


def test_settings_of_others_become_ours() -> None:
    given = {"redpanda.iceberg.mode": "value_schema_latest:subject=billing-value", "retention.ms": "5"}
    assert resolved(given, {}) == {
        "retention.ms": "5",
        "lakestream.value.format": "latest",
        "lakestream.value.subject": "billing-value",
    }
    given = {"automq.table.topic.enable": "true", "automq.table.topic.convert.value.type": "by_schema_id"}
    assert resolved(given, {}) == {"lakestream.value.format": "schema_id"}
    given = {"automq.table.topic.convert.key.type": "by_latest_schema"}
    assert resolved(given, {}) == {"lakestream.key.format": "latest"}
    assert resolved({"redpanda.iceberg.mode": "key_value"}, {}) == {"lakestream.value.format": "raw"}
    given = {
        "redpanda.iceberg.mode": "value_schema_latest:protobuf_name=a.B,subject=s",
        "redpanda.iceberg.delete": "false",
    }
    assert resolved(given, {}) == {
        "lakestream.value.format": "latest",
        "lakestream.value.message": "a.B",
        "lakestream.value.subject": "s",
    }
    latest = "automq.table.topic.convert.value.by_latest_schema"
    given = {f"{latest}.message.full.name": "a.B", f"{latest}.subject": "s", "redpanda.iceberg.partition.spec": "()"}
    assert resolved(given, {}) == {"lakestream.value.message": "a.B", "lakestream.value.subject": "s"}
    given = {"automq.table.topic.convert.key.by_latest_schema.subject": "s"}
    assert resolved(given, {}) == {"lakestream.key.subject": "s"}
    present = {"lakestream.value.format": "raw", "retention.ms": "5"}
    changed = present | {"redpanda.iceberg.mode": "value_schema_id_prefix"}
    assert resolved(changed, present) == present | {"lakestream.value.format": "schema_id"}


@pytest.mark.parametrize(
    "given",
    [
        {"redpanda.iceberg.mode": "disabled"},
        {"redpanda.iceberg.mode": "value_schema_latest:message=a.B"},
        {"redpanda.iceberg.mode": "value_schema_id_prefix:protobuf_name=a.B"},
        {"redpanda.iceberg.delete": "true"},
        {"redpanda.iceberg.partition.spec": "(hour(redpanda.timestamp))"},
        {"redpanda.iceberg.mode": "value_schema_id_prefix", "lakestream.value.format": "latest"},
        {"redpanda.iceberg.mode": "key_value", "automq.table.topic.convert.value.type": "string"},
        {"automq.table.topic.enable": "false"},
        {"automq.table.topic.convert.key.type": "by_schema"},
    ],
)
def test_settings_of_others_that_cannot_be_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting, match=r"redpanda|automq"):
        resolved(given, {})


async def test_a_topic_keeps_what_settings_of_others_mean() -> None:
    topics = Topics(MemoryStore(system()), system())
    made = await topics.create("orders", 1, {"redpanda.iceberg.mode": "value_schema_id_prefix"})
    assert made.configs == {"lakestream.value.format": "schema_id"}
    assert made.options.value_format == "schema_id"
    altered = await topics.alter("orders", lambda present: {**present, "redpanda.iceberg.mode": "key_value"})
    assert altered.configs == {"lakestream.value.format": "raw"}
    for unknown in ("redpanda.iceberg.deletes", "automq.table.topic.cdc.field", "lakestream.value.formats"):
        with pytest.raises(InvalidSetting, match="no setting"):
            await topics.create("other", 1, {unknown: "x"})


@pytest.mark.parametrize("name", ["confluent.value.schema.validation", "redpanda.value.schema.id.validation"])
def test_validation_by_the_names_of_others(name: str) -> None:
    assert resolved({name: "true"}, {}) == {"lakestream.schema.validation": "id"}
    assert resolved({name: "false"}, {"lakestream.schema.validation": "id"}) == {"lakestream.schema.validation": "none"}
    key = name.replace("value", "key")
    assert resolved({key: "true"}, {}) == {"lakestream.key.schema.validation": "id"}


@pytest.mark.parametrize("prefix", ["confluent", "redpanda"])
def test_subjects_are_named_after_topics(prefix: str) -> None:
    name = f"{prefix}.value.subject.name.strategy"
    for strategy in ("TopicNameStrategy", "io.confluent.kafka.serializers.subject.TopicNameStrategy"):
        assert resolved({name: strategy}, {}) == {}
    with pytest.raises(InvalidSetting, match=r"lakestream.value.subject names any other subject"):
        resolved({name: "RecordNameStrategy"}, {})


@pytest.mark.parametrize("validation", ["id", "full"])
@pytest.mark.parametrize("value_format", ["latest", "json", "string"])
def test_values_that_name_no_schema_are_not_looked_at(validation: str, value_format: str) -> None:
    given = {"lakestream.schema.validation": validation, "lakestream.value.format": value_format}
    with pytest.raises(InvalidSetting, match="values that begin with the id of their schema"):
        check_settings(given, {})
    check_settings(given | {"lakestream.value.format": "schema_id"}, {})
    given = {"lakestream.key.schema.validation": validation, "lakestream.key.format": value_format}
    with pytest.raises(InvalidSetting, match="keys that begin with the id of their schema"):
        check_settings(given, {})
    check_settings(given | {"lakestream.key.format": "schema_id"}, {})
