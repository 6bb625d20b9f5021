"""The brokers that are alive. Membership is a hint for clients: a wrong guess is slower, never wrong.

A broker's id is a lease, held by its session and renewed while it lives; its row says where it is. Rows change only
under the lease's token, so of two processes with one id at most one is announced. A process that comes back to the
address of a session before it takes that session's id over at once: two cannot listen there. Any other waits for the
lease to end, and is refused if somebody renews it.
"""

import asyncio
from collections.abc import Sequence
from hashlib import blake2b
from itertools import count
from typing import Final

import msgspec

from lakestream.errors import FencedError, RequestError
from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Lease, Store, Transaction

_SHARD: Final = "brokers"
_ROWS: Final = ("broker/", "broker0")
_LIVE: Final = ("live/", "live0")
_LOOK_AGAIN_MS: Final = 250
HIGHEST_ID: Final = 2**31 - 1
UNLISTED_ID: Final = -1
"""Of a process that has the streams and no door for Kafka's clients: it lives, and they never hear of it."""
FIRST_FREE_ID: Final = 1001
"""Ids that brokers take by themselves begin above those that people give, as in Kafka (`reserved.broker.max.id`): one
that a person has given is not taken while its broker is away."""


class Broker(msgspec.Struct, frozen=True, array_like=True):
    """`session` is new with every start of a process; the id may come back."""

    broker_id: int
    host: str
    port: int
    zone: str | None
    session: str

    @property
    def is_listed(self) -> bool:
        return self.broker_id != UNLISTED_ID


class Brokers:
    """Rows name the brokers; a lease per id says whose it is now."""

    def __init__(self, store: Store, *, ttl_ms: int = 6_000) -> None:
        self._store = store
        self.ttl_ms = ttl_ms
        self._announced: dict[str, int] = {}
        """Session → the token under which its row was written."""
        self.known: list[Broker] = []
        """As `live` told last: for hints that are not worth a question to the store."""

    async def take_id(self, session: str, place: tuple[str, int], zone: str | None, broker_id: int | None) -> Broker:
        """An id for the process that listens at `place`: the one it wants, else the one that it had there before, else
        the lowest from `FIRST_FREE_ID` on that is free. Nobody hears of the broker before `register`. Raises
        `RequestError` if another broker has the id that it wants."""
        if broker_id is None:
            broker_id = await self._free_id(session, place)
        elif not 0 <= broker_id <= HIGHEST_ID:
            raise RequestError(f"{broker_id} is no broker id: choose one from 0 to {HIGHEST_ID}, or none")
        broker = Broker(broker_id, *place, zone, session)
        await self._take(broker)
        return broker

    async def register(self, broker: Broker) -> None:
        """Announces the broker. Raises `RequestError` if another one has its id."""
        await self._announce(broker, await self._take(broker))

    async def heartbeat(self, broker: Broker) -> None:
        """To be repeated well within the lease's time. Raises `FencedError` if another session has the id."""
        lease = await self._acquire(broker)
        if lease.holder != broker.session:
            raise FencedError(
                f"another process has become broker {broker.broker_id} while this one gave no sign of life: this one"
                " must start again"
            )
        if self._announced.get(broker.session) != lease.token:
            await self._announce(broker, lease)

    async def withdraw(self, broker: Broker) -> None:
        """Clients hear of it no more. It still lives, and has its id, until it leaves."""
        if not broker.is_listed:
            return
        token = self._announced.get(broker.session, ABSENT)
        row = _row_key(broker.broker_id)
        await self._store.transact([Transaction(_SHARD, {_lease_key(broker): token}, {}, [row])])

    async def leave(self, broker: Broker) -> None:
        """The id is free, and nothing more comes from this session."""
        await self.withdraw(broker)
        token = self._announced.pop(broker.session, ABSENT)
        await self._store.release_lease(Address(_SHARD, _lease_key(broker)), token)

    async def sessions(self) -> frozenset[str]:
        """Of the brokers that live, also of those that clients hear of no more."""
        return frozenset(lease.holder for _, lease in await self._store.leases(_SHARD, *_LIVE))

    async def live(self) -> list[Broker]:
        """In order of their ids. One whose row is damaged is left out: clients do without a hint."""
        sessions = await self.sessions()
        self.known = [broker for broker in await self._rows() if broker.session in sessions]
        return self.known

    async def _rows(self) -> list[Broker]:
        return codec.decode_all(await self._store.range(_SHARD, *_ROWS), Broker, _SHARD)

    async def _acquire(self, broker: Broker) -> Lease:
        address = Address(_SHARD, _lease_key(broker))
        return await self._store.acquire_lease(address, broker.session, ttl_ms=self.ttl_ms)

    async def _announce(self, broker: Broker, lease: Lease) -> None:
        if not broker.is_listed:
            self._announced[broker.session] = lease.token
            return
        key = _row_key(broker.broker_id)
        row = codec.encode(broker, Address(_SHARD, key))
        await self._store.transact([Transaction(_SHARD, {_lease_key(broker): lease.token}, {key: row})])
        self._announced[broker.session] = lease.token

    async def _take(self, broker: Broker) -> Lease:
        """The lease of the broker's id. Whoever had it at the same address is gone."""
        seen: dict[int, int] = {}
        while True:
            lease = await self._acquire(broker)
            if lease.holder == broker.session:
                return lease
            other = next((each for each in await self._rows() if each.session == lease.holder), None)
            if other is not None and (other.host, other.port) == (broker.host, broker.port):
                await self._store.release_lease(Address(_SHARD, _lease_key(broker)), lease.token)
                continue
            if lease.token in seen and lease.remaining_ms > seen[lease.token] - _LOOK_AGAIN_MS / 2:
                where = "another process" if other is None else f"{other.host}:{other.port}"
                raise RequestError(
                    f"broker id {broker.broker_id} is that of {where}, which is alive: choose another with --id or"
                    " broker.id, or leave it out to get one that is free"
                )
            seen[lease.token] = lease.remaining_ms
            await asyncio.sleep(_LOOK_AGAIN_MS / 1000)

    async def _free_id(self, session: str, place: tuple[str, int]) -> int:
        held = {lease.holder: lease.token for _, lease in await self._store.leases(_SHARD, *_LIVE)}
        rows = await self._rows()
        for row in rows:
            if (row.host, row.port) == place:
                await self._store.release_lease(Address(_SHARD, _lease_key(row)), held.get(row.session, ABSENT))
                if (await self._acquire(msgspec.structs.replace(row, session=session))).holder == session:
                    return row.broker_id
        taken = {row.broker_id for row in rows if row.session in held}
        for broker_id in count(FIRST_FREE_ID):
            if broker_id not in taken:
                lease = await self._acquire(Broker(broker_id, *place, None, session))
                if lease.holder == session:
                    return broker_id
        raise AssertionError("there is no end of numbers")


def rendezvous(key: str, brokers: Sequence[Broker]) -> Broker:
    """The broker that everyone picks for `key` while the same brokers live."""
    if not brokers:
        raise ValueError("no broker is alive")
    return max(brokers, key=lambda broker: _weight(key, broker.broker_id))


def _weight(key: str, broker_id: int) -> bytes:
    return blake2b(f"{broker_id}/{key}".encode(), digest_size=8).digest()


def _row_key(broker_id: int) -> str:
    return f"broker/{broker_id:08d}"


def _lease_key(broker: Broker) -> str:
    """One that is not listed has no number that it could share with others."""
    return f"live/{broker.broker_id:08d}" if broker.is_listed else f"live/{broker.session}"
