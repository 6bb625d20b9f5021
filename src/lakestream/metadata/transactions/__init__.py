"""What is stored of transactional ids: a shard for each, with its state and what its present transaction has, and the
list of those that may have one open."""

from lakestream.metadata.transactions.model import (
    OPEN_SHARDS,
    SHARDS,
    TIMER,
    Phase,
    TransactionEnd,
    TransactionState,
    shard_of,
)
from lakestream.metadata.transactions.opened import OpenRow, listed_from, put_on_list, take_off_list
from lakestream.metadata.transactions.rows import (
    EnlistedParts,
    StoredTransaction,
    delete_state,
    enlist,
    enlisted,
    enlisted_of,
    names_from,
    read_named,
    read_state,
    read_states,
    version_of,
    write_state,
)

__all__ = [
    "OPEN_SHARDS",
    "SHARDS",
    "TIMER",
    "EnlistedParts",
    "OpenRow",
    "Phase",
    "StoredTransaction",
    "TransactionEnd",
    "TransactionState",
    "delete_state",
    "enlist",
    "enlisted",
    "enlisted_of",
    "listed_from",
    "names_from",
    "put_on_list",
    "read_named",
    "read_state",
    "read_states",
    "shard_of",
    "take_off_list",
    "version_of",
    "write_state",
]
