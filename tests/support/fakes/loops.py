"""The event loop that brokers use, for tests."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import uvloop

T = TypeVar("T")


def run(work: Awaitable[T], timeout_s: float = 60) -> T:
    """On the event loop that brokers use."""

    async def bounded() -> T:
        async with asyncio.timeout(timeout_s):
            return await work

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(bounded())
