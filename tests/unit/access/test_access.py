"""Principals, and what a refusal says."""

import inspect

import pytest
from support.fakes.authorizers import DenyAll

from lakestream.access import ALLOW_ALL, ANONYMOUS, Operation, ResourceKind, check, denied
from lakestream.catalog.engines.catalog import EngineCatalog
from lakestream.coordination.groups import Groups
from lakestream.coordination.groups.looking import GroupViews
from lakestream.coordination.shares import ShareGroups, ShareOffsets
from lakestream.errors import NotAuthorized
from lakestream.kafka.errors import code_of
from lakestream.schemas.registry.registry import SchemaRegistry
from lakestream.stream import Streams
from lakestream.stream.topics import StreamTopics


def test_a_principal_reads_as_in_kafka() -> None:
    assert str(ANONYMOUS) == "User:anonymous"


def test_everybody_may_do_everything_until_somebody_asks() -> None:
    assert ALLOW_ALL.allows(ANONYMOUS, Operation.DELETE, ResourceKind.TOPIC, "t")
    assert ALLOW_ALL.allows_any(ANONYMOUS, Operation.WRITE, ResourceKind.TOPIC)
    check(ALLOW_ALL, ANONYMOUS, Operation.ALTER, ResourceKind.CLUSTER)


def test_a_refusal_names_who_what_and_which() -> None:
    with pytest.raises(NotAuthorized, match="User:anonymous may not write topic t"):
        check(DenyAll(), ANONYMOUS, Operation.WRITE, ResourceKind.TOPIC, "t")


@pytest.mark.parametrize("kind", ResourceKind)
def test_each_kind_of_resource_has_its_code(kind: ResourceKind) -> None:
    code = code_of(denied(ANONYMOUS, Operation.READ, kind, "x"))
    known = ResourceKind.CLUSTER if kind is ResourceKind.SUBJECT else kind
    assert code.name == f"{known.value.replace(' ', '_')}_authorization_failed"


@pytest.mark.parametrize(
    ("facade", "free"),
    [
        (Streams, set()),
        (StreamTopics, set()),
        (Groups, {"start", "stop"}),
        (GroupViews, set()),
        (ShareGroups, {"connection_lost", "stop"}),
        (ShareOffsets, set()),
        (SchemaRegistry, {"parsed"}),
        (EngineCatalog, {"now_ms", "is_there", "json", "location_of", "told"}),
    ],
)
def test_every_call_into_a_facade_brings_its_principal(facade: type, free: set[str]) -> None:
    methods = {name: each for name, each in vars(facade).items() if inspect.isfunction(each) and name[0] != "_"}
    without = {name for name, each in methods.items() if [*inspect.signature(each).parameters][1:2] != ["principal"]}
    assert methods
    assert without == free
