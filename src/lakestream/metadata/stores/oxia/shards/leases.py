"""Leases on Oxia: a data row that names the holder, and a lease row beside it that says for how long.

Both are written by a root, so a grant and a renewal are decided against each other and against every transaction. A
lease begins when the root was written that carried it, by the clock of the Oxia server that took that write. To learn
the time now, a row is written: the server's answer carries it. No clock of ours is ever asked.
"""

import asyncio
import struct
from typing import Final

from lakestream.metadata import codec
from lakestream.metadata.store import Address, Lease
from lakestream.metadata.stores.oxia.keys import CLOCK, DATA, LEASE
from lakestream.metadata.stores.oxia.service import OxiaService, PutKey
from lakestream.metadata.stores.oxia.shards.root import Overlay, OxiaRow
from lakestream.metadata.stores.oxia.shards.rows import read_pairs, read_rows
from lakestream.metadata.stores.oxia.shards.writing import KnownRoot, NextRoot, Nothing, Writer

_GRANT: Final = struct.Struct("<QQ")
"""Token and time to live in milliseconds."""


async def server_ms(oxia: OxiaService, shard: str) -> int:
    """The time by the server that keeps a shard."""
    [stamp] = await oxia.put(shard, [PutKey(CLOCK, b"", None)])
    assert stamp is not None, "a put without an expectation is never refused"
    return stamp.modified_ms


async def acquire(oxia: OxiaService, writer: Writer, address: Address, holder: str, ttl_ms: int) -> tuple[Lease, bool]:
    """The lease, and whether it was granted anew."""
    shard, key = address
    places = [(DATA, key), (LEASE, key)]
    result: Lease | None = None
    is_new = False

    async def plan(known: KnownRoot, version: int) -> NextRoot | Nothing:
        nonlocal result, is_new
        now_ms, rows = await asyncio.gather(server_ms(oxia, shard), read_rows(oxia, shard, places))
        overlay = Overlay(known.at)
        data, grant = (overlay.present(*place, row) for place, row in zip(places, rows, strict=True))
        found = _lease(address, data, grant, now_ms)
        if found is not None and found.holder != holder:
            result = found
            return Nothing()
        is_new = found is None
        token = version if found is None else found.token
        result = Lease(holder, token, ttl_ms)
        lasting = {(LEASE, key): _GRANT.pack(token, ttl_ms)}
        return NextRoot({(DATA, key): codec.encode(holder, address), **lasting} if is_new else lasting)

    await writer.change(shard, plan)
    assert result is not None
    return result, is_new


async def release(oxia: OxiaService, writer: Writer, address: Address, token: int) -> bool:
    """Whether a row was deleted."""
    places = [(DATA, address.key), (LEASE, address.key)]

    async def plan(known: KnownRoot, version: int) -> NextRoot | Nothing:
        rows = await read_rows(oxia, address.shard, places)
        overlay = Overlay(known.at)
        data, grant = (overlay.present(*place, row) for place, row in zip(places, rows, strict=True))
        # A lease whose row was replaced is free already.
        if data is None or grant is None or data.version != token or _GRANT.unpack(grant.value)[0] != token:
            return Nothing()
        return NextRoot({}, deletes=[address.key])

    return await writer.change(address.shard, plan) is not None


async def list_leases(oxia: OxiaService, shard: str, start: str, end: str) -> list[tuple[str, Lease]]:
    """The unexpired ones of a range, at one point in time."""
    now_ms = await server_ms(oxia, shard)
    grants, holders = await read_pairs(oxia, shard, (LEASE, DATA), start, end)
    found = ((key, _lease(Address(shard, key), holders.get(key), grant, now_ms)) for key, grant in grants.items())
    return [(key, lease) for key, lease in found if lease is not None]


def _lease(address: Address, data: OxiaRow | None, grant: OxiaRow | None, now_ms: int) -> Lease | None:
    """The unexpired lease on a key whose row is still the one that the grant wrote."""
    if data is None or grant is None:
        return None
    token, ttl_ms = _GRANT.unpack(grant.value)
    # A server whose clock is behind the one that took the grant does not make it longer.
    remaining_ms = min(grant.at_ms + ttl_ms - now_ms, ttl_ms)
    if token != data.version or remaining_ms <= 0:
        return None
    holder = codec.decode_holder(data.value, address)
    return None if holder is None else Lease(holder, token, remaining_ms)
