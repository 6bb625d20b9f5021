"""`make simulate SEED=… HISTORIES=… [STEP=…] [BUG=…] [JOBS=…]`: many histories, or one with its whole trace."""

import logging
import os
import time
from contextlib import nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from simulator.bugs import BUGS, stage_of
from simulator.history import run
from simulator.pool import explain, play


def main() -> int:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    first, count = int(os.environ.get("SEED", "1")), int(os.environ.get("HISTORIES", "1"))
    bug, jobs, step = os.environ.get("BUG", ""), int(os.environ.get("JOBS") or "0"), int(os.environ.get("STEP") or "1")
    if bug and bug not in BUGS:
        console.print(f"no bug is called {bug}; there are: {', '.join(BUGS)}")
        return 2
    seeds = range(first, first + count * step, step)
    return _show(console, first, bug) if count == 1 else _count(console, seeds, bug, jobs)


def _show(console: Console, seed: int, bug: str) -> int:
    logging.disable(logging.CRITICAL)
    with BUGS[bug]() if bug else nullcontext():
        report = run(seed, stage_of(bug))
    for line in report.trace:
        console.print(line)
    verdict = report.violation or "every invariant held"
    console.print(f"seed {seed}: {report.acked} records acknowledged; {verdict}", style="bold")
    return int(report.violation is not None)


def _count(console: Console, seeds: range, bug: str, jobs: int) -> int:
    broken, count = [], len(seeds)
    acked = 0
    started_s = time.perf_counter()
    columns = (TextColumn("histories"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=count)
        for report in play(seeds.start, count, step=seeds.step, bug=bug, jobs=jobs):
            acked += report.acked
            if report.violation is not None:
                broken.append(report)
                progress.console.print(f"seed {report.seed}: {report.violation}")
            progress.advance(task)
    seconds = time.perf_counter() - started_s
    console.print(
        f"{count} histories, seeds {seeds[0]} to {seeds[-1]}: {acked} records acknowledged, "
        f"{len(broken)} violations, {seconds:.0f} s, {count / seconds:.0f} histories/s"
    )
    if broken:
        console.print(f"the first that broke:\n{explain(broken[0], bug=bug)}")
    return int(bool(broken))


if __name__ == "__main__":
    raise SystemExit(main())
