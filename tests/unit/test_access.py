"""Principals, and what a refusal says."""

import pytest

from lakestream.access import ALLOW_ALL, ANONYMOUS, Operation, Principal, ResourceKind, check, denied
from lakestream.errors import NotAuthorized
from lakestream.kafka.errors import code_of


class _Nothing:
    def allows(self, principal: Principal, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return False

    def allows_any(self, principal: Principal, operation: Operation, kind: ResourceKind) -> bool:
        return False


def test_a_principal_reads_as_in_kafka() -> None:
    assert str(ANONYMOUS) == "User:anonymous"


def test_everybody_may_do_everything_until_somebody_asks() -> None:
    assert ALLOW_ALL.allows(ANONYMOUS, Operation.DELETE, ResourceKind.TOPIC, "t")
    assert ALLOW_ALL.allows_any(ANONYMOUS, Operation.WRITE, ResourceKind.TOPIC)
    check(ALLOW_ALL, ANONYMOUS, Operation.ALTER, ResourceKind.CLUSTER)


def test_a_refusal_names_who_what_and_which() -> None:
    with pytest.raises(NotAuthorized, match="User:anonymous may not write topic t"):
        check(_Nothing(), ANONYMOUS, Operation.WRITE, ResourceKind.TOPIC, "t")


@pytest.mark.parametrize("kind", ResourceKind)
def test_each_kind_of_resource_has_its_code(kind: ResourceKind) -> None:
    code = code_of(denied(ANONYMOUS, Operation.READ, kind, "x"))
    assert code.name == f"{kind.value.replace(' ', '_')}_authorization_failed"
