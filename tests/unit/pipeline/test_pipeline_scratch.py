"""Directories of Spark drivers, of which some are killed."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakestream.pipeline.scratch import Scratch

_OWNER = """
import sys
from lakestream.pipeline.scratch import Scratch
print(Scratch().path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


@contextmanager
def _owner() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _OWNER], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    with _owner() as (process, left):
        (left / "spill").write_bytes(b"rows")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert left.is_dir()
    scratch = Scratch()
    assert not left.exists()
    scratch.remove()
    assert not list(tmp_path.iterdir())


def test_the_directory_of_a_living_process_stays() -> None:
    with _owner() as (_, held):
        mine = Scratch()
        assert held.is_dir()
        Scratch().remove()
        assert mine.path.is_dir()
        mine.remove()


def test_directories_without_a_lock_are_not_ours_to_remove(tmp_path: Path) -> None:
    foreign = tmp_path / "lakestream-spark-of-somebody"
    foreign.mkdir()
    Scratch().remove()
    assert foreign.is_dir()
