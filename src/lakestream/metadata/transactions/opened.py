"""The list of transactional ids that may have a transaction open, so that whoever looks finds what is overdue without
reading all ids there are. An id is put on it before its first transaction begins and stays while it is used: the next
transactions need not write it.

It is taken off in two steps: its state says first that it is not on the list any more; then the row goes, unless
somebody has put the id on it anew meanwhile."""

from collections.abc import Sequence
from typing import NamedTuple

from lakestream.metadata import codec
from lakestream.metadata.store import Address, Store, Transaction
from lakestream.metadata.transactions.model import open_address, open_shard


class OpenRow(NamedTuple):
    address: Address
    version: int
    transactional_id: str


async def put_on_list(store: Store, transactional_id: str) -> None:
    address = open_address(transactional_id)
    row = codec.encode(transactional_id, address)
    await store.transact([Transaction(address.shard, {}, {address.key: row})])


async def take_off_list(store: Store, rows: Sequence[OpenRow]) -> None:
    """Those that were not put on it anew."""
    await store.transact(
        [Transaction(row.address.shard, {row.address.key: row.version}, {}, [row.address.key]) for row in rows]
    )


async def listed_from(store: Store, number: int, start: str, limit: int) -> list[OpenRow]:
    """At most so many rows of one of the list's shards, from this key on."""
    shard = open_shard(number)
    rows = await store.range(shard, start, "\U0010ffff", limit=limit)
    return [
        OpenRow(address, row.version, codec.decode(row.value, str, address))
        for row in rows
        for address in (Address(shard, row.key),)
    ]
