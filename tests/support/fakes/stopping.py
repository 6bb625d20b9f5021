"""A metadata store that stops answering: for chains of steps that others must be able to finish."""

from collections.abc import Sequence

from lakestream.errors import Unavailable
from lakestream.metadata.store import Address, Entry, Outcome, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import system


class Stopping(MemoryStore):
    """The n-th call to it fails, and every later one; `applies`: that one is done all the same."""

    def __init__(self, at: int, *, applies: bool, counting: bool = True) -> None:
        super().__init__(system())
        self.calls, self.at, self.applies = 0, at, applies
        self.counting = counting

    async def get(self, addresses: Sequence[Address]) -> list[Entry | None]:
        self._step()
        return await super().get(addresses)

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        if self.counting and self.applies and self.calls + 1 == self.at:
            await super().transact(transactions)
        self._step()
        return await super().transact(transactions)

    def _step(self) -> None:
        if self.counting:
            self.calls += 1
            if self.calls >= self.at:
                raise Unavailable("no answer")
