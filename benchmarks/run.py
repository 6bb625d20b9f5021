"""`make bench`: every measurement, one table of ratios, benchmarks/results.json and the plots of it."""

import importlib
import json
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measured import write_measured
from benchmarks.plots import RESULTS, draw
from benchmarks.result import QUICK, Result

PARTS = (
    "ready",
    "produce",
    "validation",
    "consume",
    "replay",
    "typed",
    "lookup",
    "first_record",
    "stored",
    "pipeline",
    "connect",
    "spark_source",
    "maintain",
    "commits",
    "fresh",
    "memory",
    "topics",
    "stores",
    "profiles",
    "scale",
)


def main() -> int:
    console = Console(width=132)
    wanted = sys.argv[1:] or PARTS
    results: list[Result] = []
    started = time.monotonic()
    for name in wanted:
        with console.status(f"{name} …"):
            measured = importlib.import_module(f"benchmarks.{name}").run()
        results += measured
        console.print(f"{name}: done after {time.monotonic() - started:.0f} s")
    console.print(_table(results))
    if not QUICK and tuple(wanted) == PARTS:
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")
        written = [RESULTS, write_measured(results), *draw(results)]
        console.print(f"Written: {', '.join(str(path.relative_to(Path.cwd())) for path in written)}.")
    return 0


def _table(results: list[Result]) -> Table:
    table = Table(title="quick run: not to quote" if QUICK else None)
    for column in ("name", "ours", "peer", "unit", "ratio", "target", "met"):
        table.add_column(column, justify="left" if column in ("name", "unit", "met") else "right", no_wrap=True)
    for result in results:
        peer = "" if result["peer"] is None else f"{result['peer']:,}"
        met = "[green]yes[/]" if result["met"] else "[red]no[/]"
        row = (
            result["name"],
            f"{result['ours']:,}",
            peer,
            result["unit"],
            f"{result['ratio']:.2f}",
            f"{result['target']:g}",
        )
        table.add_row(*row, met)
    return table


if __name__ == "__main__":
    sys.exit(main())
