"""Where Java is. Spark 4.1 needs 17 to 23 with the module `jdk.incubator.vector`, which some small builds lack."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lakestream.errors import RequestError

OLDEST: Final = 17
NEWEST: Final = 23
_MODULE: Final = "jdk.incubator.vector"
_ROOTS: Final = ("/usr/lib/jvm", "/opt/java", "/Library/Java/JavaVirtualMachines")
_PROBE_S: Final = 30


def find_java() -> Path:
    """The home of a Java that Spark runs on: JAVA_HOME's, else the one on PATH, else where systems keep them.

    Raises `RequestError` with one sentence that says what was found and what to do."""
    found: list[str] = []
    for home in _homes():
        version = _version(home / "bin" / "java")
        if version is not None and OLDEST <= version <= NEWEST:
            return home
        found.append(f"{home} is {f'Java {version}' if version else 'not a Java that Spark can start'}")
    seen = "; ".join(dict.fromkeys(found)) or "there is none on this machine"
    raise RequestError(
        f"the pipeline needs Java {OLDEST} to {NEWEST} for Spark, and {seen}: install one (Debian and Ubuntu: "
        "apt-get install openjdk-17-jre-headless) or set JAVA_HOME to one"
    )


def _homes() -> Iterator[Path]:
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    for root in map(Path, _ROOTS):
        for home in sorted(root.glob("*")):
            inner = home / "Contents" / "Home"
            yield inner if inner.is_dir() else home


def _version(java: Path) -> int | None:
    """None: it does not run, or not with the module that Spark asks for."""
    try:
        done = subprocess.run(
            [java, f"--add-modules={_MODULE}", "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)', done.stderr)
    return int(match.group(1)) if done.returncode == 0 and match else None
