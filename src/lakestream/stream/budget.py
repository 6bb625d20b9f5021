"""The bytes of requests in work. Front doors stop reading while it is spent, so a slow store
slows its producers down instead of filling the memory."""

import asyncio


class MemoryBudget:
    """One request may overdraw it (else a large one could never be read); nobody is admitted after that."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._used_bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def exhausted(self) -> bool:
        return self._used_bytes >= self.limit_bytes

    def reserve(self, size_bytes: int) -> None:
        self._used_bytes += size_bytes
        if self.exhausted:
            self._room.clear()

    def release(self, size_bytes: int) -> None:
        self._used_bytes -= size_bytes
        if not self.exhausted:
            self._room.set()

    async def wait(self) -> None:
        """Returns once there is room."""
        await self._room.wait()
