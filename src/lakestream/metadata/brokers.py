"""The brokers that are alive. Membership is a hint for clients: a wrong guess is slower, never wrong."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from lakestream.metadata import codec
from lakestream.metadata.store import Address, Store, Transaction

_SHARD: Final = "brokers"
_ROWS: Final = ("broker/", "broker0")
_LIVE: Final = ("live/", "live0")


class Broker(msgspec.Struct, frozen=True, array_like=True):
    """`session` is new with every start of a process; the id may come back."""

    broker_id: int
    host: str
    port: int
    zone: str | None
    session: str


class Brokers:
    """Rows name the brokers; a lease per session says which of them live."""

    def __init__(self, store: Store, *, ttl_ms: int = 10_000) -> None:
        self._store = store
        self.ttl_ms = ttl_ms

    async def register(self, broker: Broker) -> None:
        """Announces the broker, in place of an earlier session with the same id."""
        await self.heartbeat(broker)
        address = Address(_SHARD, f"broker/{broker.broker_id:08d}")
        await self._store.transact([Transaction(_SHARD, {}, {address.key: codec.encode(broker, address)})])

    async def heartbeat(self, broker: Broker) -> int:
        """To be repeated well within the lease's time; the token to leave with."""
        lease = await self._store.acquire_lease(
            Address(_SHARD, f"live/{broker.session}"), broker.session, ttl_ms=self.ttl_ms
        )
        return lease.token

    async def leave(self, broker: Broker) -> None:
        token = await self.heartbeat(broker)
        await self._store.release_lease(Address(_SHARD, f"live/{broker.session}"), token)

    async def sessions(self) -> frozenset[str]:
        """Of the brokers that live."""
        return frozenset(lease.holder for _, lease in await self._store.leases(_SHARD, *_LIVE))

    async def live(self) -> list[Broker]:
        """In order of their ids. One whose row is damaged is left out: clients do without a hint."""
        sessions = await self.sessions()
        rows = await self._store.range(_SHARD, *_ROWS)
        brokers = codec.decode_all(rows, Broker, _SHARD)
        return [broker for broker in brokers if broker.session in sessions]


def rendezvous(key: str, brokers: Sequence[Broker]) -> Broker:
    """The broker that everyone picks for `key` while the same brokers live."""
    if not brokers:
        raise ValueError("no broker is alive")
    return max(brokers, key=lambda broker: _weight(key, broker.broker_id))


def _weight(key: str, broker_id: int) -> bytes:
    return blake2b(f"{broker_id}/{key}".encode(), digest_size=8).digest()
