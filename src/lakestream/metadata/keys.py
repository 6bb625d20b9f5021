"""Secrets that the whole cluster shares: what it signs citations with."""

from typing import Final

from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Store, Transaction

_CITATIONS: Final = Address("cluster", "citation-key")


async def citation_key(store: Store, fresh: bytes) -> bytes:
    """Chosen once: `fresh`, from whoever asks first."""
    change = Transaction(_CITATIONS.shard, {_CITATIONS.key: ABSENT}, {_CITATIONS.key: codec.encode(fresh, _CITATIONS)})
    [outcome] = await store.transact([change])
    if isinstance(outcome, Applied):
        return fresh
    entry = outcome.current[_CITATIONS.key]
    assert entry is not None
    return codec.decode(entry.value, bytes, _CITATIONS)
