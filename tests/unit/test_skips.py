"""A test that cannot run says so, and fails where everything must run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("variables", "outcome"), [pytest.param({}, "1 skipped", marks=pytest.mark.slow), ({"CI": "true"}, "1 failed")]
)
def test_a_skip_is_told_and_fails_where_everything_must_run(
    tmp_path: Path, variables: dict[str, str], outcome: str
) -> None:
    (tmp_path / "test_it.py").write_text("import pytest\n\ndef test_it():\n    pytest.skip('the server is not here')\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rs",
        "-p",
        "conftest",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
    ]
    clean = {name: value for name, value in os.environ.items() if name not in ("CI", "LAKESTREAM_REQUIRE_ALL")}
    env = clean | variables | {"PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        [*command, str(tmp_path)], capture_output=True, text=True, env=env, cwd=tmp_path, timeout=120, check=False
    )
    assert outcome in done.stdout, done.stdout + done.stderr
    assert "the server is not here" in done.stdout
