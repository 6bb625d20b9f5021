"""Prints the home of a Java that Spark can use; installs one where it can, else says the one line to run.

`--optional`: a machine without Java is no failure (brokers run without it).
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from lakestream.errors import RequestError

PACKAGE = "openjdk-17-jre-headless"
FINDER = Path(__file__).resolve().parents[1] / "src" / "lakestream" / "pipeline" / "java.py"


def find_java() -> Path:
    """The pipeline's own finder, loaded without the rest of that room, which would import Spark."""
    spec = importlib.util.spec_from_file_location("java", FINDER)
    finder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(finder)
    return finder.find_java()


def main() -> int:
    try:
        home = find_java()
    except RequestError as missing:
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            return _give_up(missing)
        sys.stderr.write(f"No Java for Spark was found: installing {PACKAGE} …\n")
        quiet = {"stdout": sys.stderr, "check": False, "env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"}}
        subprocess.run(["apt-get", "update", "-qq"], **quiet)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", PACKAGE], **quiet)
        try:
            home = find_java()
        except RequestError as still_missing:
            return _give_up(still_missing)
    sys.stdout.write(f"{home}\n")
    return 0


def _give_up(missing: RequestError) -> int:
    if "--optional" in sys.argv:
        return 0
    sys.stderr.write(f"{missing}\n")
    return 1


sys.exit(main())
