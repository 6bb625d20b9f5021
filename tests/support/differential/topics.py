"""Requests about topics: made, grown, deleted, looked at, set."""

from typing import Final

from hypothesis import strategies as st

from support.clients.wire import span
from support.differential.drawing import BROKERS, COUNTS, FLAG, Ask, ask, names

_VALUES: Final = st.sampled_from(
    [
        ("retention.ms", "5000"),
        ("retention.ms", "-1"),
        ("retention.ms", "x"),
        ("retention.ms", None),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", "bogus"),
        ("max.message.bytes", "2000"),
        ("max.message.bytes", "-5"),
        ("min.insync.replicas", "1"),
        ("compression.type", "zstd"),
        ("compression.type", "bogus"),
        ("message.timestamp.type", "LogAppendTime"),
        ("segment.ms", "10000"),
        ("nope", "1"),
    ]
)
_SETTINGS: Final = st.lists(_VALUES, max_size=2).map(
    lambda given: [{"name": name, "value": value} for name, value in given]
)


def create(prefix: str) -> st.SearchStrategy[Ask]:
    assigned = st.lists(st.tuples(st.sampled_from([0, 1, 2]), BROKERS), min_size=1, max_size=2).map(
        lambda given: [{"partition_index": index, "broker_ids": brokers} for index, brokers in given]
    )
    plain = {"num_partitions": COUNTS, "replication_factor": st.sampled_from([-1, 0, 1]), "assignments": st.just(())}
    manual = {
        "num_partitions": st.sampled_from([-1, -1, 1]),
        "replication_factor": st.just(-1),
        "assignments": assigned,
    }
    named = {"name": names(prefix, "", "..", "no name"), "configs": _SETTINGS}
    topic = st.one_of(
        st.fixed_dictionaries({**named, **plain}),
        st.fixed_dictionaries({**named, **plain, "num_partitions": st.sampled_from([1, 3]), "configs": st.just(())}),
        st.fixed_dictionaries({**named, **manual}),
    )
    fields = {
        "topics": st.lists(topic, min_size=1, max_size=2),
        "timeout": st.just(span(5_000)),
        "validate_only": FLAG,
    }
    return ask(19, (2, 7), fields, again=False)


def grow(prefix: str) -> st.SearchStrategy[Ask]:
    assigned = st.none() | st.lists(BROKERS, max_size=2).map(
        lambda given: [{"broker_ids": brokers} for brokers in given]
    )
    topic = st.fixed_dictionaries({"name": names(prefix, "", "unknown"), "count": COUNTS, "assignments": assigned})
    fields = {
        "topics": st.lists(topic, min_size=1, max_size=2),
        "timeout": st.just(span(5_000)),
        "validate_only": FLAG,
    }
    return ask(37, (0, 3), fields, again=False)


def delete(prefix: str) -> st.SearchStrategy[Ask]:
    chosen = st.lists(names(prefix, "unknown"), min_size=1, max_size=2)
    return chosen.flatmap(
        lambda given: ask(
            20,
            (1, 6),
            {
                "topic_names": st.just(given),
                "topics": st.just([{"name": name, "topic_id": None} for name in given]),
                "timeout": st.just(span(5_000)),
            },
            again=False,
        )
    )


def metadata(prefix: str) -> st.SearchStrategy[Ask]:
    chosen = st.lists(names(prefix, "unknown", "no name"), min_size=1, max_size=2, unique=True)
    return ask(
        3,
        (4, 13),
        {
            "topics": chosen.map(lambda given: [{"name": name, "topic_id": None} for name in given]),
            "allow_auto_topic_creation": st.just(False),
            "include_topic_authorized_operations": FLAG,
            "include_cluster_authorized_operations": FLAG,
        },
    )


def pages(prefix: str) -> st.SearchStrategy[Ask]:
    cursor = st.none() | st.builds(
        lambda name, index: {"topic_name": name, "partition_index": index},
        names(prefix),
        st.sampled_from([-1, 0, 1]),
    )
    chosen = st.lists(names(prefix, "unknown"), min_size=1, max_size=2, unique=True)
    return ask(
        75,
        (0, 0),
        {
            "topics": chosen.map(lambda given: [{"name": name} for name in given]),
            "response_partition_limit": st.sampled_from([0, 1, 2, 2_000]),
            "cursor": cursor,
        },
    )


def configs(prefix: str) -> st.SearchStrategy[Ask]:
    topic = st.fixed_dictionaries(
        {
            "resource_type": st.just(2),
            "resource_name": names(prefix, "unknown", "no name"),
            "configuration_keys": st.sampled_from(
                [
                    ["retention.ms"],
                    ["max.message.bytes", "cleanup.policy"],
                    ["segment.ms", "compression.type"],
                    ["nope"],
                ]
            ),
        }
    )
    other = st.fixed_dictionaries(
        {
            "resource_type": st.sampled_from([4, 8, 16, 32, 77]),
            "resource_name": st.sampled_from(["1", "", "9"]),
            "configuration_keys": st.just(["nope"]),
        }
    )
    return ask(
        32,
        (1, 4),
        {
            "resources": st.lists(
                topic | topic | other,
                min_size=1,
                max_size=2,
                unique_by=lambda each: (each["resource_type"], each["resource_name"]),
            ),
            "include_synonyms": st.just(False),
            "include_documentation": st.just(False),
        },
    )


def alter(prefix: str) -> st.SearchStrategy[Ask]:
    topic = st.fixed_dictionaries(
        {"resource_type": st.just(2), "resource_name": names(prefix, "unknown", ""), "configs": _SETTINGS}
    )
    return ask(33, (0, 2), {"resources": st.lists(topic, min_size=1, max_size=1), "validate_only": FLAG})


def increment(prefix: str) -> st.SearchStrategy[Ask]:
    change = st.builds(
        lambda setting, operation: {"name": setting[0], "config_operation": operation, "value": setting[1]},
        _VALUES,
        st.sampled_from([0, 0, 1, 2, 3]),
    )
    topic = st.fixed_dictionaries(
        {
            "resource_type": st.just(2),
            "resource_name": names(prefix, "unknown", ""),
            "configs": st.lists(change, max_size=2),
        }
    )
    return ask(44, (0, 1), {"resources": st.lists(topic, min_size=1, max_size=1), "validate_only": FLAG})


def offsets(prefix: str) -> st.SearchStrategy[Ask]:
    partition = st.builds(
        lambda index, at: {"partition_index": index, "current_leader_epoch": -1, "timestamp": at},
        st.sampled_from([0, 1, 9, -1]),
        st.sampled_from([-1, -2, 5_000]),
    )
    topic = st.fixed_dictionaries(
        {
            "name": names(prefix, "unknown"),
            "partitions": st.lists(partition, min_size=1, max_size=2, unique_by=lambda each: each["partition_index"]),
        }
    )
    return ask(
        2,
        (1, 9),
        {
            "replica_id": st.just(-1),
            "isolation_level": st.just(0),
            "topics": st.lists(topic, min_size=1, max_size=1),
            "timeout": st.just(span(5_000)),
        },
    )


def trim(prefix: str) -> st.SearchStrategy[Ask]:
    partition = st.builds(
        lambda index, offset: {"partition_index": index, "offset": offset},
        st.sampled_from([0, 1, 9]),
        st.sampled_from([-1, 0, 5, -7]),
    )
    topic = st.fixed_dictionaries(
        {
            "name": names(prefix, "unknown"),
            "partitions": st.lists(partition, min_size=1, max_size=2, unique_by=lambda each: each["partition_index"]),
        }
    )
    return ask(21, (0, 2), {"topics": st.lists(topic, min_size=1, max_size=1), "timeout": st.just(span(5_000))})
