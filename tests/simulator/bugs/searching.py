"""Looking for a planted bug: from the first history on that can show it, never from a seed that once did. What a seed
plays changes with the code; how often histories of a kind meet a bug does not."""

from simulator.bugs.registry import BUGS, seeds_for, stage_of
from simulator.history import run


def find(name: str, histories: int) -> tuple[int, str] | None:
    """How many histories it took, and what was violated. None: it was not found in so many."""
    stage = stage_of(name)
    with BUGS[name]():
        for number, seed in enumerate(seeds_for(name, histories), 1):
            violation = run(seed, stage).violation
            if violation is not None:
                return number, violation
    return None
