"""Whether a process can serve: what /ready answers."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from lakestream.bucket.identity import CLUSTERS
from lakestream.errors import LakestreamError, ObjectMissing
from lakestream.metadata.counters import known_cluster
from lakestream.node.storage.backends import Backends

CHECK_TIMEOUT_S: Final = 5.0
CHECK_EVERY_S: Final = 5.0
"""However often somebody asks, the stores are asked this often at the most: a bucket charges for it."""


class Readiness:
    """Whether metadata store and bucket answer, and whether the process is on its way out."""

    def __init__(self, backends: Backends, is_draining: Callable[[], bool]) -> None:
        self._backends = backends
        self._is_draining = is_draining
        self._checked_s = float("-inf")
        self._found: Sequence[str] = ()
        self._checking = asyncio.Lock()

    async def __call__(self) -> Sequence[str]:
        if self._is_draining():
            return ["the process is stopping"]
        async with self._checking:
            if time.monotonic() - self._checked_s > CHECK_EVERY_S:
                self._found = [
                    *await _failure("metadata store", known_cluster(self._backends.store)),
                    *await _failure("bucket", self._list_bucket()),
                ]
                self._checked_s = time.monotonic()
        return self._found

    async def _list_bucket(self) -> None:
        """A volume that is not mounted any more answers, too, with nothing."""
        async for _ in self._backends.objects.list(CLUSTERS):
            return
        raise ObjectMissing(f"{self._backends.objects.url} says no more whose it is")


async def _failure(what: str, work: Awaitable[object]) -> list[str]:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await work
    except TimeoutError:
        return [f"the {what} did not answer within {CHECK_TIMEOUT_S:.0f} s"]
    except LakestreamError as error:
        return [f"the {what} does not answer: {error}"]
    return []
