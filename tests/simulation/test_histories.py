"""The simulator on the code as it is: many short histories, determinism, and a few planted bugs."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from simulator.bugs import BUGS
from simulator.history import run
from simulator.pool import explain, play

FIRST_SEED = 1
HISTORIES = 1_000

# Seeds that failed at some time. What a seed plays changes with the simulator, so these no longer replay the bugs that
# they showed then: they are more seeds, not regression tests.
ONCE_FAILED = (7, 17, 88, 136, 148)

# Planted bugs that are not shown to be found: they need more histories than a quick test has (`make simulate BUG=…
# HISTORIES=…`), or what is noticed is the patch itself (name-instead-of-uuid confuses the auditor's own bookkeeping).
RARE = {
    "extents-read-before-the-fence",
    "late-save-of-a-generation",
    "lease-without-fence",
    "name-instead-of-uuid",
    "orphan-reaped-too-early",
    "retry-after-unknown-outcome",
    "session-mark-dropped-too-early",
    "two-coordinators-of-one-group",
    "unknown-outcome-decided-by-the-extent",
    "unlock-of-anothers-lock",
}


def test_no_history_breaks_an_invariant() -> None:
    acked = played = 0
    for report in play(FIRST_SEED, HISTORIES):
        assert report.violation is None, explain(report)
        acked += report.acked
        played += 1
    assert played == HISTORIES
    assert acked > HISTORIES * 5


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_seeds_that_once_failed(seed: int) -> None:
    report = run(seed)
    assert report.violation is None, explain(report)


def test_the_same_seed_gives_the_same_trace_to_the_byte() -> None:
    """In other processes, with other hash seeds, too."""
    program = (
        "import logging, sys; logging.disable(logging.CRITICAL); from simulator.history import run\n"
        "for seed in range(1, 13): sys.stdout.write('\\n'.join(run(seed).trace))"
    )
    digests = set()
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parents[1])}
        result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        digests.add(sha256(result.stdout).hexdigest())
        assert len(result.stdout) > 1_000
    assert len(digests) == 1


@pytest.mark.parametrize("name", sorted(BUGS.keys() - RARE))
def test_planted_bugs_are_found(name: str) -> None:
    with BUGS[name]():
        found = next((seed for seed in range(1, 100) if _breaks(seed)), None)
    assert found is not None


def _breaks(seed: int) -> bool:
    return run(seed).violation is not None
