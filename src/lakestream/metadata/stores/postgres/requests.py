"""Transactions as the arguments of the function that applies them: arrays, one element for each row."""

from collections.abc import Sequence

from lakestream.metadata.store import Transaction


def arguments(transactions: Sequence[Transaction]) -> tuple[list[object], ...]:
    """Of `transact` in schema.py. Transactions are numbered from 1."""
    shards = [transaction.shard.encode() for transaction in transactions]
    numbered = list(enumerate(transactions, start=1))
    checks = [(n, k.encode(), version) for n, t in numbered for k, version in t.checks.items()]
    deletes = [(n, k.encode()) for n, t in numbered for k in t.deletes]
    ranges = [(n, start.encode(), end.encode()) for n, t in numbered for start, end in t.delete_ranges]
    puts = [(n, k.encode(), value) for n, t in numbered for k, value in t.puts.items()]
    columns: list[list[object]] = [list(shards)]
    for rows, width in ((checks, 3), (deletes, 2), (ranges, 3), (puts, 3)):
        columns.append([row[0] for row in rows])
        columns.append([shards[row[0] - 1] for row in rows])
        columns.extend([row[place] for row in rows] for place in range(1, width))
    return tuple(columns)
