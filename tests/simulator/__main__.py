"""`make simulate SEED=… HISTORIES=… [BUG=…]`: many histories, or one with its whole trace."""

import logging
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from simulator.bugs import BUGS
from simulator.history import Report, run

CHUNK = 50


def _run_chunk(seeds: range, bug: str) -> list[tuple[int, int, str | None]]:
    """(seed, records acknowledged, violation) of each history."""
    logging.disable(logging.CRITICAL)
    with BUGS[bug]() if bug else nullcontext():
        reports = [run(seed) for seed in seeds]
    return [(report.seed, report.acked, report.violation) for report in reports]


def _chunks(first: int, count: int) -> Iterator[range]:
    for start in range(first, first + count, CHUNK):
        yield range(start, min(start + CHUNK, first + count))


def _show(console: Console, report: Report) -> None:
    for line in report.trace:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    verdict = report.violation or "every invariant held"
    console.print(f"seed {report.seed}: {report.acked} records acknowledged; {verdict}", style="bold")


def main() -> int:
    console = Console()
    first, count = int(os.environ.get("SEED", "1")), int(os.environ.get("HISTORIES", "1"))
    bug = os.environ.get("BUG", "")
    if bug and bug not in BUGS:
        console.print(f"no bug is called {bug}; there are: {', '.join(BUGS)}")
        return 2
    if count == 1:
        logging.disable(logging.CRITICAL)
        with BUGS[bug]() if bug else nullcontext():
            report = run(first)
        _show(console, report)
        return int(report.violation is not None)
    bad: list[tuple[int, str]] = []
    acked = 0
    started = time.perf_counter()
    columns = (TextColumn("histories"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with ProcessPoolExecutor() as pool, Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=count)
        for results in pool.map(_run_chunk, *zip(*((chunk, bug) for chunk in _chunks(first, count)), strict=True)):
            for seed, records, violation in results:
                acked += records
                if violation is not None:
                    bad.append((seed, violation))
                    progress.console.print(f"seed {seed}: {violation}", highlight=False, markup=False)
            progress.advance(task, len(results))
    seconds = time.perf_counter() - started
    console.print(
        f"{count} histories from seed {first}, {acked} records acknowledged, {len(bad)} violations, "
        f"{count / seconds:.0f} histories/s"
    )
    return int(bool(bad))


if __name__ == "__main__":
    raise SystemExit(main())
