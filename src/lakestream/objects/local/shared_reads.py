"""Small reads that are asked for in one turn of the event loop, done a few to a thread.

A hop to a thread and back costs several times what a small read from the page cache does, and who opens the files of
a table asks for many at once.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

SMALL_BYTES: Final = 128 * 1024
_SHARE: Final = 8
"""Reads that one thread does one after the other."""


@dataclass(frozen=True, slots=True)
class _PendingRead:
    work: Callable[[], bytes]
    answer: "asyncio.Future[bytes]"


class SharedReads:
    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._asked: list[_PendingRead] = []

    async def run(self, work: Callable[[], bytes]) -> bytes:
        """What `work` reads, or the `OSError` that it fails with."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes] = loop.create_future()
        self._asked.append(_PendingRead(work, answer))
        loop.call_soon(self._share_out, loop)
        return await answer

    def _share_out(self, loop: asyncio.AbstractEventLoop) -> None:
        """Whoever is called first finds what the whole turn has asked for. What a loop that ended left is dropped."""
        asked = [each for each in self._asked if each.answer.get_loop() is loop]
        self._asked.clear()
        for start in range(0, len(asked), _SHARE):
            share = asked[start : start + _SHARE]
            done = loop.run_in_executor(self._threads, _outcomes, [each.work for each in share])
            done.add_done_callback(lambda done, share=share: _hand_out(share, done))  # type: ignore[misc]


def _outcomes(share: Sequence[Callable[[], bytes]]) -> list[bytes | OSError]:
    return [_outcome(work) for work in share]


def _outcome(work: Callable[[], bytes]) -> bytes | OSError:
    try:
        return work()
    except OSError as error:
        return error


def _hand_out(share: Sequence[_PendingRead], done: "asyncio.Future[list[bytes | OSError]]") -> None:
    failed = None if done.cancelled() else done.exception()
    for number, each in enumerate(share):
        if each.answer.done():
            continue
        if done.cancelled():
            each.answer.cancel()
        elif failed is not None:
            each.answer.set_exception(failed)
        elif isinstance(outcome := done.result()[number], OSError):
            each.answer.set_exception(outcome)
        else:
            each.answer.set_result(outcome)
