"""Which transactions of a call a backend may carry out together."""

from collections.abc import Sequence

from lakestream.metadata.store import Transaction


def rounds(transactions: Sequence[Transaction]) -> list[list[Transaction]]:
    """Which go together, in the order given: no shard twice in a round."""
    taken: list[list[Transaction]] = []
    shards: set[str] = set()
    for transaction in transactions:
        if not taken or transaction.shard in shards:
            taken.append([])
            shards.clear()
        taken[-1].append(transaction)
        shards.add(transaction.shard)
    return taken
