"""Requests that hypothesis makes, by API and version, about a few names: what they mean depends on what came before."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

from support.clients.wire import span

_TIME: Final = {"timeout": span(5_000)}
_COUNTS: Final = st.sampled_from([-2, -1, 0, 1, 2, 3, 4])
_INDEXES: Final = st.lists(st.sampled_from([0, 1, 2, 9, -1]), max_size=3, unique=True)
_BROKERS: Final = st.lists(st.sampled_from([1, 1, 1, 7, -1]), max_size=2)
_FLAG: Final = st.booleans()


@dataclass(frozen=True)
class Ask:
    """`again`: the same question may be put again until the answer has settled."""

    key: int
    version: int
    fields: Mapping[str, Any]
    again: bool = True


def asks(prefix: str, broker_id: int) -> st.SearchStrategy[list[tuple[Ask, Ask]]]:
    """Sequences of pairs: what we are asked, whose broker has another id than Kafka's, and what Kafka is asked."""
    drawn = st.one_of(
        _create(prefix),
        _create(prefix),
        _grow(prefix),
        *(strategy(prefix) for strategy in (_delete, _metadata, _pages, _configs, _alter, _increment, _offsets, _trim)),
        *(strategy(prefix) for strategy in (_elect, _reassign, _reassignments, _quotas, _alter_quotas, _commit)),
        *(strategy(prefix) for strategy in (_committed, _forget, _groups, _drop_groups, _producers, _log_dirs, _moves)),
        _cluster(),
    )
    return st.lists(drawn.map(lambda ask: (_for(ask, broker_id), ask)), min_size=4, max_size=12)


def _for(ask: Ask, broker_id: int) -> Ask:
    return Ask(ask.key, ask.version, _numbered(ask.fields, broker_id), ask.again)


def _numbered(value: Any, broker_id: int) -> Any:
    """Kafka's only broker is 1."""
    if isinstance(value, dict):
        renamed = {name: _numbered(each, broker_id) for name, each in value.items()}
        for name in ("broker_ids", "replicas"):
            if renamed.get(name):
                renamed[name] = [broker_id if each == 1 else each for each in renamed[name]]
        if renamed.get("broker_id") == 1:
            renamed["broker_id"] = broker_id
        if renamed.get("resource_type") in (4, 8) and renamed.get("resource_name") == "1":
            renamed["resource_name"] = str(broker_id)
        return renamed
    if isinstance(value, list | tuple):
        return [_numbered(each, broker_id) for each in value]
    return value


def _ask(
    key: int, versions: tuple[int, int], fields: Mapping[str, st.SearchStrategy[Any]], *, again: bool = True
) -> st.SearchStrategy[Ask]:
    return st.builds(
        Ask, st.just(key), st.integers(*versions), st.fixed_dictionaries(dict(fields)), again=st.just(again)
    )


def _names(prefix: str, *others: str) -> st.SearchStrategy[str]:
    return st.sampled_from([f"{prefix}-a", f"{prefix}-a", f"{prefix}-b", *others])


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


def _create(prefix: str) -> st.SearchStrategy[Ask]:
    assigned = st.lists(st.tuples(st.sampled_from([0, 1, 2]), _BROKERS), min_size=1, max_size=2).map(
        lambda given: [{"partition_index": index, "broker_ids": brokers} for index, brokers in given]
    )
    plain = {"num_partitions": _COUNTS, "replication_factor": st.sampled_from([-1, 0, 1]), "assignments": st.just(())}
    manual = {
        "num_partitions": st.sampled_from([-1, -1, 1]),
        "replication_factor": st.just(-1),
        "assignments": assigned,
    }
    named = {"name": _names(prefix, "", "..", "no name"), "configs": _SETTINGS}
    topic = st.one_of(
        st.fixed_dictionaries({**named, **plain}),
        st.fixed_dictionaries({**named, **plain, "num_partitions": st.sampled_from([1, 3]), "configs": st.just(())}),
        st.fixed_dictionaries({**named, **manual}),
    )
    fields = {
        "topics": st.lists(topic, min_size=1, max_size=2),
        "timeout": st.just(span(5_000)),
        "validate_only": _FLAG,
    }
    return _ask(19, (2, 7), fields, again=False)


def _grow(prefix: str) -> st.SearchStrategy[Ask]:
    assigned = st.none() | st.lists(_BROKERS, max_size=2).map(
        lambda given: [{"broker_ids": brokers} for brokers in given]
    )
    topic = st.fixed_dictionaries({"name": _names(prefix, "", "unknown"), "count": _COUNTS, "assignments": assigned})
    fields = {
        "topics": st.lists(topic, min_size=1, max_size=2),
        "timeout": st.just(span(5_000)),
        "validate_only": _FLAG,
    }
    return _ask(37, (0, 3), fields, again=False)


def _delete(prefix: str) -> st.SearchStrategy[Ask]:
    names = st.lists(_names(prefix, "unknown"), min_size=1, max_size=2)
    return names.flatmap(
        lambda given: _ask(
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


def _metadata(prefix: str) -> st.SearchStrategy[Ask]:
    names = st.lists(_names(prefix, "unknown", "no name"), min_size=1, max_size=2, unique=True)
    return _ask(
        3,
        (4, 13),
        {
            "topics": names.map(lambda given: [{"name": name, "topic_id": None} for name in given]),
            "allow_auto_topic_creation": st.just(False),
            "include_topic_authorized_operations": _FLAG,
            "include_cluster_authorized_operations": _FLAG,
        },
    )


def _pages(prefix: str) -> st.SearchStrategy[Ask]:
    cursor = st.none() | st.builds(
        lambda name, index: {"topic_name": name, "partition_index": index},
        _names(prefix),
        st.sampled_from([-1, 0, 1]),
    )
    names = st.lists(_names(prefix, "unknown"), min_size=1, max_size=2, unique=True)
    return _ask(
        75,
        (0, 0),
        {
            "topics": names.map(lambda given: [{"name": name} for name in given]),
            "response_partition_limit": st.sampled_from([0, 1, 2, 2_000]),
            "cursor": cursor,
        },
    )


def _configs(prefix: str) -> st.SearchStrategy[Ask]:
    topic = st.fixed_dictionaries(
        {
            "resource_type": st.just(2),
            "resource_name": _names(prefix, "unknown", "no name"),
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
    return _ask(
        32,
        (1, 4),
        {
            "resources": st.lists(topic | topic | other, min_size=1, max_size=2, unique_by=lambda each: str(each)),
            "include_synonyms": st.just(False),
            "include_documentation": st.just(False),
        },
    )


def _alter(prefix: str) -> st.SearchStrategy[Ask]:
    topic = st.fixed_dictionaries(
        {"resource_type": st.just(2), "resource_name": _names(prefix, "unknown", ""), "configs": _SETTINGS}
    )
    return _ask(33, (0, 2), {"resources": st.lists(topic, min_size=1, max_size=1), "validate_only": _FLAG})


def _increment(prefix: str) -> st.SearchStrategy[Ask]:
    change = st.builds(
        lambda setting, operation: {"name": setting[0], "config_operation": operation, "value": setting[1]},
        _VALUES,
        st.sampled_from([0, 0, 1, 2, 3]),
    )
    topic = st.fixed_dictionaries(
        {
            "resource_type": st.just(2),
            "resource_name": _names(prefix, "unknown", ""),
            "configs": st.lists(change, max_size=2),
        }
    )
    return _ask(44, (0, 1), {"resources": st.lists(topic, min_size=1, max_size=1), "validate_only": _FLAG})


def _offsets(prefix: str) -> st.SearchStrategy[Ask]:
    partition = st.builds(
        lambda index, at: {"partition_index": index, "current_leader_epoch": -1, "timestamp": at},
        st.sampled_from([0, 1, 9, -1]),
        st.sampled_from([-1, -2, 5_000]),
    )
    topic = st.fixed_dictionaries(
        {
            "name": _names(prefix, "unknown"),
            "partitions": st.lists(partition, min_size=1, max_size=2, unique_by=lambda each: each["partition_index"]),
        }
    )
    return _ask(
        2,
        (1, 9),
        {
            "replica_id": st.just(-1),
            "isolation_level": st.just(0),
            "topics": st.lists(topic, min_size=1, max_size=1),
            "timeout": st.just(span(5_000)),
        },
    )


def _trim(prefix: str) -> st.SearchStrategy[Ask]:
    partition = st.builds(
        lambda index, offset: {"partition_index": index, "offset": offset},
        st.sampled_from([0, 1, 9]),
        st.sampled_from([-1, 0, 5, -7]),
    )
    topic = st.fixed_dictionaries(
        {
            "name": _names(prefix, "unknown"),
            "partitions": st.lists(partition, min_size=1, max_size=2, unique_by=lambda each: each["partition_index"]),
        }
    )
    return _ask(21, (0, 2), {"topics": st.lists(topic, min_size=1, max_size=1), "timeout": st.just(span(5_000))})


def _elect(prefix: str) -> st.SearchStrategy[Ask]:
    topic = st.fixed_dictionaries({"topic": _names(prefix, "unknown"), "partitions": _INDEXES})
    return _ask(
        43,
        (0, 2),
        {
            "election_type": st.sampled_from([0, 1, 7]),
            "topic_partitions": st.lists(topic, min_size=1, max_size=1),
            "timeout": st.just(span(5_000)),
        },
    )


def _reassign(prefix: str) -> st.SearchStrategy[Ask]:
    partition = st.builds(
        lambda index, replicas: {"partition_index": index, "replicas": replicas},
        st.sampled_from([0, 1, 9]),
        st.none() | _BROKERS,
    )
    topic = st.fixed_dictionaries(
        {
            "name": _names(prefix, "unknown"),
            "partitions": st.lists(partition, min_size=1, max_size=2, unique_by=lambda each: each["partition_index"]),
        }
    )
    return _ask(
        45,
        (0, 1),
        {
            "topics": st.lists(topic, min_size=1, max_size=1),
            "allow_replication_factor_change": st.just(True),
            "timeout": st.just(span(5_000)),
        },
    )


def _reassignments(prefix: str) -> st.SearchStrategy[Ask]:
    return _ask(46, (0, 0), {"topics": st.none(), "timeout": st.just(span(5_000))})


def _quotas(prefix: str) -> st.SearchStrategy[Ask]:
    component = st.builds(
        lambda kind, match, name: {"entity_type": kind, "match_type": match, "match": name},
        st.sampled_from(["client-id", "client-id", "user", "ip", "bogus", ""]),
        st.sampled_from([0, 0, 7]),
        _names(prefix) | st.none(),
    )
    return _ask(48, (0, 1), {"components": st.lists(component, min_size=1, max_size=2), "strict": _FLAG})


def _alter_quotas(prefix: str) -> st.SearchStrategy[Ask]:
    change = st.builds(
        lambda key, value, remove: {"key": key, "value": value, "remove": remove},
        st.sampled_from(["producer_byte_rate", "consumer_byte_rate", "nope"]),
        st.sampled_from([1e9, 2e9, 1.5, 0.0, -1.0]),
        _FLAG,
    )
    entity = st.lists(
        st.builds(
            lambda kind, name: {"entity_type": kind, "entity_name": name},
            st.sampled_from(["client-id", "client-id", "bogus"]),
            _names(prefix, ""),
        ),
        max_size=1,
    )
    entry = st.fixed_dictionaries({"entity": entity, "ops": st.lists(change, max_size=2)})
    return _ask(49, (0, 1), {"entries": st.lists(entry, min_size=1, max_size=1), "validate_only": _FLAG}, again=False)


def _commit(prefix: str) -> st.SearchStrategy[Ask]:
    partition = st.builds(
        lambda index, offset: {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        },
        st.sampled_from([0, 1, 9]),
        st.sampled_from([0, 5]),
    )
    topic = st.fixed_dictionaries(
        {
            "name": _names(prefix, "unknown"),
            "partitions": st.lists(partition, min_size=1, max_size=2, unique_by=lambda each: each["partition_index"]),
        }
    )
    member = st.sampled_from([(-1, ""), (-1, ""), (3, "ghost"), (-1, "ghost")])
    return member.flatmap(
        lambda given: _ask(
            8,
            (2, 9),
            {
                "group_id": _names(prefix),
                "generation_id_or_member_epoch": st.just(given[0]),
                "member_id": st.just(given[1]),
                "group_instance_id": st.none(),
                "retention_time": st.just(span(0)),
                "topics": st.lists(topic, min_size=1, max_size=1),
            },
        )
    )


def _committed(prefix: str) -> st.SearchStrategy[Ask]:
    topic = st.fixed_dictionaries(
        {"name": _names(prefix), "partition_indexes": st.lists(st.sampled_from([0, 1]), min_size=1, unique=True)}
    )
    return _ask(
        9,
        (1, 7),
        {
            "group_id": _names(prefix),
            "topics": st.lists(topic, min_size=1, max_size=1),
            "require_stable": st.just(False),
        },
    )


def _forget(prefix: str) -> st.SearchStrategy[Ask]:
    topic = st.fixed_dictionaries(
        {
            "name": _names(prefix, "unknown"),
            "partitions": st.sampled_from([0, 1, 9]).map(lambda index: [{"partition_index": index}]),
        }
    )
    fields = {"group_id": _names(prefix, ""), "topics": st.lists(topic, min_size=1, max_size=1)}
    return _ask(47, (0, 0), fields, again=False)


def _groups(prefix: str) -> st.SearchStrategy[Ask]:
    groups = st.lists(_names(prefix), min_size=1, max_size=2, unique=True)
    described = _ask(15, (0, 6), {"groups": groups, "include_authorized_operations": _FLAG})
    newer = _ask(69, (0, 1), {"group_ids": groups, "include_authorized_operations": st.just(False)})
    return described | newer


def _drop_groups(prefix: str) -> st.SearchStrategy[Ask]:
    return _ask(42, (0, 2), {"groups_names": st.lists(_names(prefix), min_size=1, max_size=1)}, again=False)


def _producers(prefix: str) -> st.SearchStrategy[Ask]:
    topic = st.fixed_dictionaries({"name": _names(prefix, "unknown"), "partition_indexes": _INDEXES})
    return _ask(61, (0, 0), {"topics": st.lists(topic, min_size=1, max_size=1)})


def _log_dirs(prefix: str) -> st.SearchStrategy[Ask]:
    topic = st.fixed_dictionaries({"topic": _names(prefix, "unknown"), "partitions": _INDEXES})
    return _ask(35, (1, 5), {"topics": st.lists(topic, min_size=1, max_size=1)})


def _moves(prefix: str) -> st.SearchStrategy[Ask]:
    topic = st.fixed_dictionaries({"name": _names(prefix, "unknown"), "partitions": _INDEXES})
    folder = st.fixed_dictionaries({"path": st.just("/nowhere"), "topics": st.lists(topic, min_size=1, max_size=1)})
    return _ask(34, (1, 2), {"dirs": st.lists(folder, min_size=1, max_size=1)})


def _cluster() -> st.SearchStrategy[Ask]:
    """What depends on nothing that came before."""
    acl = {"operation": 3, "permission_type": 3}
    fixed: list[tuple[int, tuple[int, int], dict[str, Any]]] = [
        (17, (0, 1), {"mechanism": "PLAIN"}),
        (36, (0, 2), {"auth_bytes": b"x"}),
        (
            29,
            (1, 3),
            {
                "resource_type_filter": 1,
                "resource_name_filter": None,
                "pattern_type_filter": 1,
                "principal_filter": None,
                "host_filter": None,
                "operation": 1,
                "permission_type": 1,
            },
        ),
        (
            30,
            (1, 3),
            {
                "creations": [
                    {
                        "resource_type": 2,
                        "resource_name": "t",
                        "resource_pattern_type": 3,
                        "principal": "User:a",
                        "host": "*",
                        **acl,
                    }
                ]
            },
        ),
        (
            31,
            (1, 3),
            {
                "filters": [
                    {
                        "resource_type_filter": 2,
                        "resource_name_filter": "t",
                        "pattern_type_filter": 3,
                        "principal_filter": "User:a",
                        "host_filter": "*",
                        **acl,
                    }
                ]
            },
        ),
        (41, (1, 3), {"owners": None}),
        (50, (0, 0), {"users": None}),
        (50, (0, 0), {"users": [{"name": "u"}, {"name": "v"}, {"name": "v"}]}),
        (51, (0, 0), {"deletions": [{"name": "u", "mechanism": 1}], "upsertions": []}),
        (55, (0, 2), {"topics": [{"topic_name": "t", "partitions": [{"partition_index": 0}]}]}),
        (57, (0, 2), {"feature_updates": [], "validate_only": False, **_TIME}),
        (64, (0, 0), {"broker_id": 99}),
        (
            66,
            (0, 2),
            {
                "state_filters": ["Bogus", "Ongoing"],
                "producer_id_filters": [],
                "duration_filter": -1,
                "transactional_id_pattern": None,
            },
        ),
        (
            66,
            (2, 2),
            {
                "state_filters": [],
                "producer_id_filters": [],
                "duration_filter": -1,
                "transactional_id_pattern": "(",
            },
        ),
        (74, (1, 1), {"resource_types": [16, 77]}),
        (
            60,
            (0, 2),
            {"include_cluster_authorized_operations": True, "endpoint_type": 1, "include_fenced_brokers": True},
        ),
        (
            60,
            (1, 2),
            {"include_cluster_authorized_operations": False, "endpoint_type": 2, "include_fenced_brokers": False},
        ),
        (
            60,
            (1, 2),
            {"include_cluster_authorized_operations": False, "endpoint_type": 9, "include_fenced_brokers": False},
        ),
    ]
    return st.one_of(
        *(
            _ask(key, versions, {name: st.just(value) for name, value in fields.items()})
            for key, versions, fields in fixed
        )
    )
