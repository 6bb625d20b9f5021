"""Finding a Java that Spark runs on, and saying in one sentence when there is none."""

from pathlib import Path

import pytest

from lakestream.errors import RequestError
from lakestream.pipeline import java
from lakestream.pipeline.java import find_java


def install(home: Path, version: str, *, status: int = 0) -> Path:
    """A Java that says its version, as real ones do, on the error stream."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\nexit {status}\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    monkeypatch.setattr(java, "_ROOTS", (str(tmp_path / "jvm"),))
    return tmp_path


def test_java_home_wins(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(bare / "jvm" / "java-17", "17.0.15")
    chosen = install(bare / "chosen", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(chosen))
    assert find_java() == chosen


def test_the_one_on_the_path_is_next(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(bare / "jvm" / "java-17", "17.0.15")
    on_path = install(bare / "here", "17.0.1")
    monkeypatch.setattr(java.shutil, "which", lambda name: str(on_path / "bin" / "java"))
    assert find_java() == on_path


def test_an_unfit_one_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(bare / "old", "11.0.2")))
    install(bare / "jvm" / "a-25", "25.0.1")
    install(bare / "jvm" / "b-without-the-module", "17.0.1", status=1)
    fit = install(bare / "jvm" / "c-17", "17.0.15")
    assert find_java() == fit


@pytest.mark.usefixtures("bare")
def test_none_at_all_is_one_sentence() -> None:
    with pytest.raises(RequestError, match=r"needs Java 17 to 23.*there is none on this machine.*JAVA_HOME") as caught:
        find_java()
    assert "\n" not in str(caught.value)


def test_only_unfit_ones_are_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(bare / "old", "11.0.2")))
    with pytest.raises(RequestError, match="old is Java 11"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(bare / "typo"))
    with pytest.raises(RequestError, match="typo is not a Java that Spark can start"):
        find_java()
