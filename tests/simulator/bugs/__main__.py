"""`python -m simulator.bugs [name …]`: how many histories it takes to find each planted bug."""

import logging
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from simulator.bugs import BUGS, find

LIMIT: Final = int(os.environ.get("HISTORIES") or "2000")


def search(name: str) -> tuple[int, str] | None:
    logging.disable(logging.CRITICAL)
    return find(name, LIMIT)


def main(names: list[str]) -> int:
    missed = 0
    with ProcessPoolExecutor(int(os.environ.get("JOBS") or "0") or None) as pool:
        for name, found in zip(names, pool.map(search, names), strict=True):
            missed += found is None
            number, violation = found or (f"not in {LIMIT}", "")
            print(f"{name:48} {number!s:>12}  {violation}", flush=True)
    return missed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:] or sorted(BUGS)))
