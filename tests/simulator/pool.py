"""Many histories, on all cores."""

import asyncio
import gc
import logging
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from itertools import repeat
from multiprocessing import get_context
from typing import Final

from simulator.bugs import BUGS, stage_of
from simulator.history import Report, run

_CHUNK: Final = 20
_SHOWN_LINES: Final = 40


def play(first_seed: int, count: int, *, step: int = 1, bug: str = "", jobs: int = 0) -> Iterator[Report]:
    """The reports of so many seeds from first_seed on, in order. Only a broken history comes with its trace. Without
    `jobs` every core works."""
    seeds = range(first_seed, first_seed + count * step, step)
    chunks = [seeds[start : start + _CHUNK] for start in range(0, count, _CHUNK)]
    workers = min(jobs or len(os.sched_getaffinity(0)), len(chunks))
    # Spawned, not forked: the caller may have threads.
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_settle_in)
    try:
        for reports in pool.map(_play, chunks, repeat(bug)):
            yield from reports
    finally:
        pool.shutdown(cancel_futures=True)


def explain(report: Report, *, bug: str = "") -> str:
    """What broke, how it came to it, and how to see it again."""
    left_out = len(report.trace) - _SHOWN_LINES
    planted = f" BUG={bug}" if bug else ""
    return "\n".join(
        [
            f"seed {report.seed}: {report.violation}",
            *([f"… {left_out} earlier lines"] if left_out > 0 else []),
            *report.trace[-_SHOWN_LINES:],
            f"replay it with: make simulate SEED={report.seed} HISTORIES=1{planted}",
        ]
    )


def _settle_in() -> None:
    """Garbage is looked for between histories only, and never in what the process began with. asyncio's set of all
    tasks, which nobody asks for here, is not kept: putting a task into it costs as much as running it."""
    logging.disable(logging.CRITICAL)
    asyncio.tasks._all_tasks.add = id  # type: ignore[attr-defined]
    gc.collect()
    gc.freeze()
    gc.disable()


def _play(seeds: range, bug: str) -> list[Report]:
    with BUGS[bug]() if bug else nullcontext():
        reports = [_run(seed, bug) for seed in seeds]
    gc.collect()
    return reports


def _run(seed: int, bug: str) -> Report:
    try:
        report = run(seed, stage_of(bug))
    except Exception as error:
        error.add_note(f"in the history of seed {seed}")
        raise
    return report if report.violation else replace(report, trace=())
