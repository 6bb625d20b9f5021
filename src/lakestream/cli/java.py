"""Where Java is. Spark 4.1 runs on Java 17 to 23; only the pipeline needs it."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

OLDEST, NEWEST = 17, 23
PACKAGE = "openjdk-17-jre-headless"
HINT = f"install it with: sudo apt-get install -y {PACKAGE} (or set JAVA_HOME to a Java {OLDEST} to {NEWEST})"


def find_java() -> Path | None:
    """The home of a Java that Spark can run on: JAVA_HOME, then PATH, then where Linux distributions put them."""
    for home in _candidates():
        version = _version(home)
        if version is not None and OLDEST <= version <= NEWEST:
            return home
    return None


def _candidates() -> Iterator[Path]:
    if configured := os.environ.get("JAVA_HOME"):
        yield Path(configured)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    for root in (Path("/usr/lib/jvm"), Path("/opt/java"), Path("/Library/Java/JavaVirtualMachines")):
        for home in sorted(root.glob("*")):
            yield home / "Contents" / "Home" if (home / "Contents").is_dir() else home


def _version(home: Path) -> int | None:
    java = home / "bin" / "java"
    if not java.is_file():
        return None
    release = home / "release"
    if release.is_file():
        text = release.read_text(errors="replace")
    else:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=30).stderr
    found = re.search(r'(?:JAVA_VERSION=|version )"(\d+)', text)
    return int(found.group(1)) if found else None
