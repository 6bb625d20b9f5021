"""`python -m tests.model [--brokers …] [--bug NAME]`: explore within other bounds, or show a planted bug's trace."""

import argparse
import dataclasses
import resource
import sys

from .bugs import BUGS
from .cells import Bounds
from .explore import explore
from .step import Rules


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    for bound in dataclasses.fields(Bounds):
        parser.add_argument(f"--{bound.name.replace('_', '-')}", type=int)
    parser.add_argument("--whole", action="store_true", help="every state by itself, not the quotient")
    parser.add_argument(
        "--keep-dead", action="store_true", help="in the quotient, objects stay until they are collected"
    )
    parser.add_argument("--bug", choices=sorted(BUGS), help="plant this bug, in the bounds that show it")
    given = vars(parser.parse_args())
    whole, bug, keep_dead = given.pop("whole"), given.pop("bug"), given.pop("keep_dead")
    bounds = BUGS[bug].bounds if bug else Bounds(pipelines=2 if whole else 0)
    bounds = dataclasses.replace(bounds, **{name: value for name, value in given.items() if value is not None})
    found = explore(Rules(bounds, frozenset([bug] if bug else []), quotient=not whole and not bug, keep_dead=keep_dead))
    print(f"{bounds}\n{found}\n{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")
    return 1 if found.violation else 0


if __name__ == "__main__":
    sys.exit(main())
