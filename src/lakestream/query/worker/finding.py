"""The newest rows of a key, in table and tail, without a scan: in the tail first, then in files whose filters say that
they may have it, newest offsets first."""

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Protocol

import pyarrow as pa

from lakestream.errors import QueryLimit, QueryRefused
from lakestream.query.messages import KeySearch
from lakestream.query.sources import Relation, StreamSource
from lakestream.query.worker.reading import Loop, key_reader, plain_schema, read_tail
from lakestream.query.worker.tails import TailKeys


class Stops(Protocol):
    def stops(self, stop: Callable[[], object]) -> AbstractContextManager[None]:
        """Within it a query that is to be stopped is stopped by this."""


def find(
    relations: Sequence[Relation], newest: KeySearch, loop: Loop, stopping: Stops
) -> tuple[pa.Table, tuple[int, ...] | None]:
    """The rows in the columns of the stream, and from where on by partition there are no others; None: from the
    beginning."""
    [relation] = relations
    if not isinstance(relation.rows, StreamSource):
        raise QueryRefused(f"{relation.name} is no stream, so it has no keys to look for")
    begun = loop.begin(_found(relation.rows, newest))
    with stopping.stops(begun.cancel):
        try:
            return begun.result()
        except CancelledError:
            raise QueryLimit("the query was stopped") from None


@lru_cache(maxsize=1)
def _tail_keys() -> TailKeys:
    """For the one loop of this process."""
    return TailKeys()


async def _found(rows: StreamSource, newest: KeySearch) -> tuple[pa.Table, tuple[int, ...] | None]:
    schema = plain_schema(rows.shape)
    tiles = await _tail_keys().with_key(rows, newest.key)
    found = [table for tile in tiles async for table in read_tail(tile, rows, newest.key)]
    enough = newest.limit - sum(table.num_rows for table in found)
    since = {partition: end for partition, _, end in rows.below}
    if enough > 0 and rows.below:
        below = await key_reader(rows.location).newest(
            rows.files, rows.deletes, rows.below, newest.key, schema.names, rows.shape, enough
        )
        found += below.tables
        since = dict(below.since)
    tables = [table.select(schema.names).cast(schema) for table in found if table.num_rows]
    starts = tuple(since.get(partition, 0) for partition in range(max(since, default=-1) + 1))
    return pa.concat_tables(tables) if tables else schema.empty_table(), starts if any(starts) else None
