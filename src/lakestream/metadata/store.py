"""The small ordered store that all shared state lives in.

A store holds shards; a shard holds keys in byte order; a key holds a value and
the version that its last write was given. Versions of a shard only grow and are
never reused, also when a key, or all of them, are deleted and written again;
those of two shards do not compare. A transaction is atomic within its shard and
isolated; one call carries many, each with its own outcome.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

ABSENT = 0
"""The version of a key that is not there."""


class Address(NamedTuple):
    shard: str
    key: str


class Entry(msgspec.Struct, frozen=True):
    key: str
    value: bytes
    version: int


class Transaction(msgspec.Struct, frozen=True):
    """Applied whole if every check holds, else not at all.

    Deletes and range deletes ([start, end)) go first, then puts.
    """

    shard: str
    checks: Mapping[str, int]
    puts: Mapping[str, bytes]
    deletes: Sequence[str] = ()
    delete_ranges: Sequence[tuple[str, str]] = ()


class Applied(msgspec.Struct, frozen=True):
    """The version that every put of the transaction now has."""

    version: int


class Refused(msgspec.Struct, frozen=True):
    """The present entries of the checks that failed (None: the key is absent)."""

    current: Mapping[str, Entry | None]


Outcome = Applied | Refused


class Lease(msgspec.Struct, frozen=True):
    """A grant. `token` is the version of the ordinary key that holds the holder's
    name: it changes with every new grant and never on renewal, so a transaction in the same
    shard that checks `{key: token}` fails once somebody else has taken over."""

    holder: str
    token: int
    remaining_ms: int


class Store(Protocol):
    """Raises `Unavailable` when the outcome is unknown; everything else is decided."""

    async def get(self, addresses: Sequence[Address]) -> list[Entry | None]:
        """The present entries. Linearizable: sees every write that finished before the call."""
        ...

    async def range(self, shard: str, start: str, end: str, *, limit: int | None = None) -> list[Entry]:
        """Entries with start <= key < end, in order. Linearizable, one point in time."""
        ...

    async def shards(self, start: str, end: str) -> list[str]:
        """Names of the shards that have entries, start <= name < end, in order. For lists that people ask for: nothing
        that is done often goes through all shards."""
        ...

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        """One round trip; outcomes in the order given; no atomicity between them."""
        ...

    async def watch(self, seen: Mapping[Address, int], *, timeout_ms: int) -> bool:
        """Waits until some key's version differs from the one seen (True), or time is out (False)."""
        ...

    async def acquire_lease(self, address: Address, holder: str, *, ttl_ms: int) -> Lease:
        """Takes the lease if it is free or expired by the store's clock; renews it (same token) if
        `holder` has it; else returns the present holder's lease unchanged."""
        ...

    async def release_lease(self, address: Address, token: int) -> None:
        """Gives the lease up if it still has this token; another's lease is never touched."""
        ...

    async def leases(self, shard: str, start: str, end: str) -> list[tuple[str, Lease]]:
        """The unexpired leases with start <= key < end, in order."""
        ...

    async def close(self) -> None: ...
