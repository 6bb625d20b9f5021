"""Requests about what is not a topic: groups and their offsets, quotas, replicas, the cluster."""

from typing import Any, Final

from hypothesis import strategies as st

from support.clients.wire import span
from support.differential.drawing import BROKERS, FLAG, INDEXES, Ask, ask, names

_TIME: Final = {"timeout": span(5_000)}


def elect(prefix: str) -> st.SearchStrategy[Ask]:
    topic = st.fixed_dictionaries({"topic": names(prefix, "unknown"), "partitions": INDEXES})
    return ask(
        43,
        (0, 2),
        {
            "election_type": st.sampled_from([0, 1, 7]),
            "topic_partitions": st.lists(topic, min_size=1, max_size=1),
            "timeout": st.just(span(5_000)),
        },
    )


def reassign(prefix: str) -> st.SearchStrategy[Ask]:
    partition = st.builds(
        lambda index, replicas: {"partition_index": index, "replicas": replicas},
        st.sampled_from([0, 1, 9]),
        st.none() | BROKERS,
    )
    topic = st.fixed_dictionaries(
        {
            "name": names(prefix, "unknown"),
            "partitions": st.lists(partition, min_size=1, max_size=2, unique_by=lambda each: each["partition_index"]),
        }
    )
    return ask(
        45,
        (0, 1),
        {
            "topics": st.lists(topic, min_size=1, max_size=1),
            "allow_replication_factor_change": st.just(True),
            "timeout": st.just(span(5_000)),
        },
    )


def reassignments(prefix: str) -> st.SearchStrategy[Ask]:
    return ask(46, (0, 0), {"topics": st.none(), "timeout": st.just(span(5_000))})


def quotas(prefix: str) -> st.SearchStrategy[Ask]:
    component = st.builds(
        lambda kind, match, name: {"entity_type": kind, "match_type": match, "match": name},
        st.sampled_from(["client-id", "client-id", "user", "ip", "bogus", ""]),
        st.sampled_from([0, 0, 7]),
        names(prefix) | st.none(),
    )
    return ask(48, (0, 1), {"components": st.lists(component, min_size=1, max_size=2), "strict": FLAG})


def alter_quotas(prefix: str) -> st.SearchStrategy[Ask]:
    change = st.builds(
        lambda key, value, remove: {"key": key, "value": value, "remove": remove},
        st.sampled_from(["producer_byte_rate", "consumer_byte_rate", "nope"]),
        st.sampled_from([1e9, 2e9, 1.5, 0.0, -1.0]),
        FLAG,
    )
    entity = st.lists(
        st.builds(
            lambda kind, name: {"entity_type": kind, "entity_name": name},
            st.sampled_from(["client-id", "client-id", "bogus"]),
            names(prefix, ""),
        ),
        max_size=1,
    )
    entry = st.fixed_dictionaries({"entity": entity, "ops": st.lists(change, max_size=2)})
    return ask(49, (0, 1), {"entries": st.lists(entry, min_size=1, max_size=1), "validate_only": FLAG}, again=False)


def commit(prefix: str) -> st.SearchStrategy[Ask]:
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
            "name": names(prefix, "unknown"),
            "partitions": st.lists(partition, min_size=1, max_size=2, unique_by=lambda each: each["partition_index"]),
        }
    )
    member = st.sampled_from([(-1, ""), (-1, ""), (3, "ghost"), (-1, "ghost")])
    return member.flatmap(
        lambda given: ask(
            8,
            (2, 9),
            {
                "group_id": names(prefix),
                "generation_id_or_member_epoch": st.just(given[0]),
                "member_id": st.just(given[1]),
                "group_instance_id": st.none(),
                "retention_time": st.just(span(0)),
                "topics": st.lists(topic, min_size=1, max_size=1),
            },
        )
    )


def committed(prefix: str) -> st.SearchStrategy[Ask]:
    topic = st.fixed_dictionaries(
        {"name": names(prefix), "partition_indexes": st.lists(st.sampled_from([0, 1]), min_size=1, unique=True)}
    )
    return ask(
        9,
        (1, 7),
        {
            "group_id": names(prefix),
            "topics": st.lists(topic, min_size=1, max_size=1),
            "require_stable": st.just(False),
        },
    )


def forget(prefix: str) -> st.SearchStrategy[Ask]:
    topic = st.fixed_dictionaries(
        {
            "name": names(prefix, "unknown"),
            "partitions": st.sampled_from([0, 1, 9]).map(lambda index: [{"partition_index": index}]),
        }
    )
    fields = {"group_id": names(prefix, ""), "topics": st.lists(topic, min_size=1, max_size=1)}
    return ask(47, (0, 0), fields, again=False)


def groups(prefix: str) -> st.SearchStrategy[Ask]:
    groups = st.lists(names(prefix), min_size=1, max_size=2, unique=True)
    described = ask(15, (0, 6), {"groups": groups, "include_authorized_operations": FLAG})
    newer = ask(69, (0, 1), {"group_ids": groups, "include_authorized_operations": st.just(False)})
    return described | newer


def drop_groups(prefix: str) -> st.SearchStrategy[Ask]:
    return ask(42, (0, 2), {"groups_names": st.lists(names(prefix), min_size=1, max_size=1)}, again=False)


def producers(prefix: str) -> st.SearchStrategy[Ask]:
    topic = st.fixed_dictionaries({"name": names(prefix, "unknown"), "partition_indexes": INDEXES})
    return ask(61, (0, 0), {"topics": st.lists(topic, min_size=1, max_size=1)})


def log_dirs(prefix: str) -> st.SearchStrategy[Ask]:
    topic = st.fixed_dictionaries({"topic": names(prefix, "unknown"), "partitions": INDEXES})
    return ask(35, (1, 5), {"topics": st.lists(topic, min_size=1, max_size=1)})


def moves(prefix: str) -> st.SearchStrategy[Ask]:
    topic = st.fixed_dictionaries({"name": names(prefix, "unknown"), "partitions": INDEXES})
    folder = st.fixed_dictionaries({"path": st.just("/nowhere"), "topics": st.lists(topic, min_size=1, max_size=1)})
    return ask(34, (1, 2), {"dirs": st.lists(folder, min_size=1, max_size=1)})


def cluster() -> st.SearchStrategy[Ask]:
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
            ask(key, versions, {name: st.just(value) for name, value in fields.items()})
            for key, versions, fields in fixed
        )
    )
