"""Quotas of clients: what may be one, and what a broker does about those that are set.

As in Kafka each broker allows a client so many bytes a second, on average: a client that has been idle may have ten
seconds' worth at once. What it takes beyond that is a debt, which its rate pays off; until then it is not listened to.
A client's own quota counts, else the default of all clients; each client id has an account of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from lakestream.errors import RequestError
from lakestream.metadata.quotas import Entity, Quota, QuotasAt, change_quotas, read_quotas
from lakestream.metadata.store import ABSENT, Store

CLIENT: Final = "client-id"
PRODUCED: Final = "producer_byte_rate"
CONSUMED: Final = "consumer_byte_rate"
LIMITS: Final = (PRODUCED, CONSUMED)
_KINDS: Final = (CLIENT, "user", "ip")
_NOT_ENFORCED: Final = ("request_percentage", "controller_mutation_rate", "connection_creation_rate")
_BURST_S: Final = 10.0
_LONGEST_MS: Final = 60_000
"""What is owed beyond that is owed when the client comes again."""
_MOST_ACCOUNTS: Final = 10_000


class QuotaChange(NamedTuple):
    """`limits`: their new values; None takes one away."""

    entity: Entity
    limits: Mapping[str, float | None]


def check_change(change: QuotaChange) -> None:
    """Raises `RequestError` with a sentence."""
    if not change.entity:
        raise RequestError("a quota is somebody's: name a client-id, or its default")
    for kind, name in change.entity.items():
        if kind not in _KINDS:
            raise RequestError(f"there is no kind of client called {kind}: it is one of {', '.join(_KINDS)}")
        if name == "":
            raise RequestError(f"the {kind} of a quota is not empty: null is the default of all")
    others = [kind for kind in change.entity if kind != CLIENT]
    if others:
        raise RequestError(f"a quota by {others[0]} is not enforced, so none is taken: clients have them by client-id")
    for limit, value in change.limits.items():
        if value is None:
            continue
        if limit in _NOT_ENFORCED:
            raise RequestError(f"{limit} is not enforced, so none is taken: those that are are {' and '.join(LIMITS)}")
        if limit not in LIMITS:
            raise RequestError(f"there is no quota called {limit}: choose {' or '.join(LIMITS)}")
        if not 0 < value < float("inf") or value != int(value):
            raise RequestError(f"{limit} is a whole number of bytes a second, from 1 on")


def changed(quotas: Sequence[Quota], changes: Sequence[QuotaChange]) -> list[Quota]:
    """The quotas after these changes, in order of who has them. Pure."""
    found = {_key(quota.entity): dict(quota.limits) for quota in quotas}
    for change in changes:
        limits = found.setdefault(_key(change.entity), {})
        for limit, value in change.limits.items():
            if value is None:
                limits.pop(limit, None)
            else:
                limits[limit] = value
    ordered = sorted(found, key=lambda key: [(kind, name is not None, name or "") for kind, name in key])
    return [Quota(dict(key), found[key]) for key in ordered if found[key]]


def _key(entity: Entity) -> tuple[tuple[str, str | None], ...]:
    return tuple(sorted(entity.items()))


@dataclass(slots=True)
class _Account:
    """`owed` bytes, as of `at_s`."""

    owed: float
    at_s: float


class Quotas:
    """Of one broker. What others change it learns from `follow`, called from time to time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known = QuotasAt(ABSENT, ())
        self._rates: dict[str | None, Mapping[str, float]] = {}
        self._accounts: dict[tuple[str, str], _Account] = {}

    async def follow(self) -> None:
        self._take(await read_quotas(self._store))

    async def list(self) -> Sequence[Quota]:
        """As they are now."""
        await self.follow()
        return self._known.quotas

    async def change(self, changes: Sequence[QuotaChange]) -> None:
        """Of changes that were checked."""
        self._take(await change_quotas(self._store, lambda quotas: changed(quotas, changes)))

    def _take(self, known: QuotasAt) -> None:
        if known != self._known:
            self._known = known
            self._rates = {
                quota.entity[CLIENT]: quota.limits for quota in known.quotas if set(quota.entity) == {CLIENT}
            }
            self._accounts.clear()

    def charge(self, limit: str, client_id: str, size_bytes: int, now_s: float) -> int:
        """Puts bytes on the client's account; for how many milliseconds it is not to be listened to."""
        if not self._rates:
            return 0
        rate = self._rate(limit, client_id)
        if rate is None:
            return 0
        if len(self._accounts) >= _MOST_ACCOUNTS:
            self._accounts.clear()
        account = self._accounts.setdefault((limit, client_id), _Account(0.0, now_s))
        account.owed = max(0.0, account.owed - (now_s - account.at_s) * rate) + size_bytes
        account.at_s = now_s
        return min(_LONGEST_MS, int(max(0.0, account.owed / rate - _BURST_S) * 1000))

    def _rate(self, limit: str, client_id: str) -> float | None:
        """The client's own quota, whatever it limits, comes before the default."""
        for name in (client_id, None):
            rate = self._rates.get(name, {}).get(limit)
            if rate is not None:
                return rate
        return None
