"""`make bench`: every measurement, one table of ratios, benchmarks/results.json and the plots of it.

Single parts (`python -m benchmarks.run produce consume`) write nothing, unless MERGE=1 puts their results in the place
of those of the same name; those of a quick run say so.
"""

import importlib
import json
import os
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
    "spark_decode",
    "lookup",
    "first_record",
    "stored",
    "pipeline",
    "connect",
    "spark_source",
    "maintain",
    "commits",
    "fresh",
    "asking",
    "rest",
    "memory",
    "topics",
    "stores",
    "profiles",
    "transactions",
    "scale",
)


MERGE = os.environ.get("MERGE", "") not in ("", "0")


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
    if MERGE:
        results = _merged(results)
    if MERGE or (not QUICK and tuple(wanted) == PARTS):
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")
        written = [RESULTS, write_measured(results), *draw(results)]
        console.print(f"Written: {', '.join(str(path.relative_to(Path.cwd())) for path in written)}.")
    return 0


def _merged(fresh: list[Result]) -> list[Result]:
    kept: dict[str, Result] = {result["name"]: result for result in json.loads(RESULTS.read_text())}
    for result in fresh:
        kept[result["name"]] = {**result, "quick": True} if QUICK else result
    return list(kept.values())


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
