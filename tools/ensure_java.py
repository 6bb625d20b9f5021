"""Prints the home of a Java that Spark can use; installs one where it can, else says the one line to run.

`--optional`: a machine without Java is no failure (brokers run without it).
"""

import os
import shutil
import subprocess
import sys

from lakestream.cli.java import HINT, PACKAGE, find_java


def main() -> int:
    home = find_java()
    if home is None and os.geteuid() == 0 and shutil.which("apt-get"):
        sys.stderr.write(f"No Java found: installing {PACKAGE} …\n")
        quiet = {"stdout": sys.stderr, "check": False, "env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"}}
        subprocess.run(["apt-get", "update", "-qq"], **quiet)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", PACKAGE], **quiet)
        home = find_java()
    if home is not None:
        sys.stdout.write(f"{home}\n")
        return 0
    if "--optional" in sys.argv:
        return 0
    sys.stderr.write(f"Java was not found: {HINT}\n")
    return 1


sys.exit(main())
