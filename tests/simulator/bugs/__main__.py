"""`python -m simulator.bugs`: how many histories it takes to find each planted bug."""

import logging
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from simulator.bugs import BUGS, seeds_for
from simulator.history import run

LIMIT: Final = int(os.environ.get("HISTORIES") or "1000")


def first_seed(name: str) -> tuple[int | None, str]:
    """The first seed that finds the bug, and what it finds."""
    logging.disable(logging.CRITICAL)
    with BUGS[name]():
        for seed in seeds_for(name, LIMIT):
            violation = run(seed).violation
            if violation is not None:
                return seed, violation
    return None, ""


def main() -> int:
    names = sorted(BUGS)
    missed = 0
    with ProcessPoolExecutor() as pool:
        for name, (seed, violation) in zip(names, pool.map(first_seed, names), strict=True):
            missed += seed is None
            print(f"{name:40} {seed or f'not in {LIMIT}'!s:>12}  {violation}", flush=True)
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
