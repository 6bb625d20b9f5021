"""Expiry of producer rows: idempotent producers that have written nothing for a long time are forgotten.

A row goes only in a transaction that rewrites the head, which remembers the highest id that ever expired there: whoever
decides on a batch sees the row, or that it is gone. A batch of a producer that was forgotten is told so; it is never
taken for a duplicate, nor does it begin in the middle. See `lakestream.metadata.log.commit`.
"""

import logging
from collections.abc import Collection
from typing import Final, NamedTuple

import msgspec

from lakestream.errors import CorruptObject
from lakestream.metadata import codec
from lakestream.metadata.log.head import HEAD, PRODUCERS, ProducerState, shard_of
from lakestream.metadata.log.partition import head_address, read_head
from lakestream.metadata.store import Address, Applied, Store, Transaction
from lakestream.model import StreamPartition

log = logging.getLogger(__name__)

_PAGE: Final = 1_000
_NOT_KNOWN: Final = -1


class Expired(NamedTuple):
    """How many rows went, and how many there are still."""

    gone: int
    left: int


async def expire_producers(
    store: Store,
    partition: StreamPartition,
    *,
    now_ms: int,
    expiration_ms: int,
    kept: Collection[int] = (),
) -> Expired:
    """Deletes the rows of producers whose last append is too long ago, but for those in `kept`. Rows from before that
    time was kept get it now. A page that loses its race is left for the next pass, as is a partition with an open
    transaction."""
    shard, start, expired, left = shard_of(partition), PRODUCERS[0], 0, 0
    while True:
        # The head first: a row that changes after it was read moves the head's version on.
        known = await read_head(store, partition)
        if known is None:
            return Expired(expired, 0)
        if known.head.first_open is not None:
            return Expired(expired, left + 1)
        rows = await store.range(shard, start, PRODUCERS[1], limit=_PAGE)
        dated: dict[str, bytes] = {}
        gone: list[str] = []
        for row in rows:
            address = Address(shard, row.key)
            try:
                state = codec.decode(row.value, ProducerState, address)
            except CorruptObject as error:
                log.error("a producer's row cannot expire: %s", error)
                continue
            # A clock that ran far ahead must not keep a row for years.
            if state.last_append_ms == _NOT_KNOWN or state.last_append_ms - now_ms > expiration_ms:
                dated[row.key] = codec.encode(msgspec.structs.replace(state, last_append_ms=now_ms), address)
            elif now_ms - state.last_append_ms >= expiration_ms and _producer_of(row.key) not in kept:
                gone.append(row.key)
        if dated or gone:
            highest = max((_producer_of(key) for key in gone), default=-1)
            head = msgspec.structs.replace(known.head, expired_producers=max(known.head.expired_producers, highest))
            puts = {HEAD: codec.encode(head, head_address(partition)), **dated}
            [outcome] = await store.transact([Transaction(shard, {HEAD: known.version}, puts, deletes=gone)])
            if isinstance(outcome, Applied):
                expired, left = expired + len(gone), left - len(gone)
        left += len(rows)
        if len(rows) < _PAGE:
            return Expired(expired, left)
        start = rows[-1].key + "\0"


def _producer_of(key: str) -> int:
    return int(key.removeprefix(PRODUCERS[0]), 16)
