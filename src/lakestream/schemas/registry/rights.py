"""Who may do what with subjects. A schema's rights are those of the subjects that have it."""

from collections.abc import Iterable
from typing import Final

from lakestream.access import CLUSTER_NAME, Authorizer, Operation, Principal, ResourceKind, check, denied
from lakestream.schemas.registry.model import Subject

_SUBJECT: Final = ResourceKind.SUBJECT


class SubjectRights:
    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def check(self, principal: Principal, operation: Operation, subject: Subject) -> None:
        """A context as a whole, which has no name, is the cluster's. Raises `NotAuthorized`."""
        if subject.name:
            check(self._authorizer, principal, operation, _SUBJECT, str(subject))
        else:
            check(self._authorizer, principal, operation, ResourceKind.CLUSTER, CLUSTER_NAME)

    def check_any(self, principal: Principal, operation: Operation, what: str) -> None:
        """Whether there may be something to find at all: before anything is looked up."""
        if not self._authorizer.allows_any(principal, operation, _SUBJECT):
            raise denied(principal, operation, _SUBJECT, what)

    def allowed(self, principal: Principal, operation: Operation, subjects: Iterable[Subject]) -> list[Subject]:
        return [each for each in subjects if self._authorizer.allows(principal, operation, _SUBJECT, str(each))]
