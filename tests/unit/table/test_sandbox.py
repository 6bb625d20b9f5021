"""What parses badly does so in another process, and this one is told which file it was."""

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from support.tables import attempts

from lakestream.errors import CorruptObject, Unavailable
from lakestream.table.sandbox import Attempt, Sandbox

TESTS = Path(__file__).resolve().parents[2]


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    made = Sandbox()
    yield made
    made.close()


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def test_one_process_tries_many_files(sandbox: Sandbox) -> None:
    before = children()
    for number in range(50):
        sandbox.check(attempts.fine, f"file {number}", b"x" * number * 1000 + b"x")
        assert len(children() - before) == 1
    with pytest.raises(CorruptObject):
        sandbox.check(attempts.refused, "file 0", b"x")
    running = children()
    sandbox.check(attempts.fine, "file 0", b"x")
    assert children() == running
    sandbox.close()
    assert children() == before


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (attempts.refused, "a/b.parquet has 3 bytes too many"),
        (attempts.surprised, "a/b.parquet is damaged: KeyError"),
        (attempts.crashed, r"a/b.parquet is damaged: it makes the process that reads it crash \(SIGABRT\)"),
        (attempts.greedy, "a/b.parquet is damaged: reading it takes more than 2048 MiB of memory"),
    ],
)
def test_damage_names_the_file_and_is_remembered(sandbox: Sandbox, attempt: Attempt, message: str) -> None:
    with pytest.raises(CorruptObject, match=message):
        sandbox.check(attempt, "a/b.parquet", b"abc")
    sandbox.check(attempts.fine, "a/c.parquet", b"abc")
    running = children()
    with pytest.raises(CorruptObject, match=message):
        sandbox.check(attempt, "a/b.parquet", b"abc")
    assert children() == running
    sandbox.check(attempts.fine, "a/b.parquet", b"restored")


def test_nobody_is_blamed_for_what_another_file_did(sandbox: Sandbox) -> None:
    files = [(f"file {number}", b"x") for number in range(4)]
    assert sandbox.check_each(attempts.harmful, files) == [None] * 4


def test_what_takes_forever_is_damage_if_it_had_the_time(sandbox: Sandbox) -> None:
    hasty = Sandbox(cpu_limit_s=0.3)
    trouble: Exception | None = None
    while not isinstance(trouble, CorruptObject):  # On a loaded machine it has not always the time.
        [trouble] = hasty.check_each(attempts.endless, [("slow.avro", b"abc")])
        assert trouble is not None
    assert re.match(r"slow.avro is damaged: .* \(SIGPROF\)", str(trouble))
    with pytest.raises(Unavailable, match=r"slow.avro is not tried out: .* does not answer"):
        hasty.check(attempts.stopped, "slow.avro", b"other")
    hasty.close()


@pytest.mark.parametrize("attempt", [attempts.killed, attempts.left])
def test_a_process_that_others_ended_says_nothing_about_the_file(sandbox: Sandbox, attempt: Attempt) -> None:
    with pytest.raises(Unavailable, match=r"a.avro is not tried out"):
        sandbox.check(attempt, "a.avro", b"abc")
    sandbox.check(attempts.fine, "a.avro", b"abc")


def test_without_the_other_process_nothing_is_called_damaged(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "no python"))
    with pytest.raises(Unavailable, match=r"a.avro cannot be tried out"):
        sandbox.check(attempts.fine, "a.avro", b"abc")


def test_threads_take_turns(sandbox: Sandbox) -> None:
    def one(number: int) -> str:
        attempt = attempts.refused if number % 3 == 0 else attempts.fine
        try:
            sandbox.check(attempt, f"file {number}", b"x" * number + b"x")
        except CorruptObject as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(one, range(60)))
    for number, outcome in enumerate(outcomes):
        assert outcome == (f"file {number} has {number + 1} bytes too many" if number % 3 == 0 else "")


def test_a_fork_has_a_process_of_its_own(sandbox: Sandbox) -> None:
    sandbox.check(attempts.fine, "a", b"x")
    mine = children()
    pid = os.fork()
    if pid == 0:
        sandbox.forget()
        try:
            sandbox.check(attempts.fine, "b", b"x")
            sandbox.close()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    sandbox.check(attempts.fine, "c", b"x")
    assert children() == mine
