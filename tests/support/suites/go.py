"""Test programs of Go: what became of each of their tests."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

_OUTCOME = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", re.M)
_RUNNING = re.compile(r"^=== RUN\s+(\S+)", re.M)


def run_tests(
    program: Path, output: Path, chosen: str, environment: Mapping[str, str], timeout_s: float, skipped: str = ""
) -> dict[str, str]:
    """PASS, FAIL or SKIP by the name of the test. One that never ended has failed."""
    command = [str(program), "-test.v", f"-test.timeout={timeout_s:.0f}s", f"-test.run={chosen}"]
    command += [f"-test.skip={skipped}"] if skipped else []
    with output.open("wb") as written:
        subprocess.run(
            command,
            env=os.environ | dict(environment),
            cwd=output.parent,
            stdout=written,
            stderr=written,
            timeout=timeout_s + 30,
            check=False,
        )
    text = output.read_text(errors="replace")
    ended = {name: outcome for outcome, name in _OUTCOME.findall(text)}
    return dict.fromkeys(_RUNNING.findall(text), "FAIL") | ended
