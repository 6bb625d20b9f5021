"""Who asks, and what they may do: principals, and the port that decides."""

from lakestream.access.authorizer import (
    ALLOW_ALL,
    CLUSTER_NAME,
    AllowAll,
    Authorizer,
    Operation,
    ResourceKind,
    allowed,
    check,
    denied,
)
from lakestream.access.principal import ANONYMOUS, Principal

__all__ = [
    "ALLOW_ALL",
    "ANONYMOUS",
    "CLUSTER_NAME",
    "AllowAll",
    "Authorizer",
    "Operation",
    "Principal",
    "ResourceKind",
    "allowed",
    "check",
    "denied",
]
