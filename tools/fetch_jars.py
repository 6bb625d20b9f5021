"""Brings the jars and archives that a pom names into a directory, by Maven, and checks every one of them.

Usage: fetch_jars.py NAME DIRECTORY, where tools/NAME holds pom.xml and SHA256SUMS. A complete
directory is left alone. `--update` writes the checksum list instead of checking it.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parent


def main() -> int:
    name, target = sys.argv[1], Path(sys.argv[2])
    update = "--update" in sys.argv
    listing = TOOLS / name / "SHA256SUMS"
    if not update and _differences(target, listing) == []:
        return 0
    maven = shutil.which("mvn") or _install_maven()
    if maven is None:
        sys.stderr.write("Maven was not found: install it with: sudo apt-get install -y maven\n")
        return 1
    sys.stderr.write(f"Fetching the {name} jars …\n")
    shutil.rmtree(target, ignore_errors=True)
    command = [maven, "-q", "-B", "-f", TOOLS / name / "pom.xml", "dependency:copy-dependencies"]
    fetched = subprocess.run([*command, f"-DoutputDirectory={target.resolve()}"], check=False, stdout=sys.stderr)
    if fetched.returncode:
        sys.stderr.write(f"Maven could not fetch the {name} jars.\n")
        return 1
    if update:
        listing.write_text("".join(f"{digest}  {jar}\n" for jar, digest in sorted(_digests(target).items())))
        return 0
    wrong = _differences(target, listing)
    if wrong:
        shutil.rmtree(target)
        sys.stderr.write(f"Checksums differ from {listing.relative_to(TOOLS.parent)}: {', '.join(wrong)}\n")
        return 1
    return 0


def _install_maven() -> str | None:
    if os.geteuid() == 0 and shutil.which("apt-get"):
        sys.stderr.write("No Maven found: installing it …\n")
        quiet = {"stdout": sys.stderr, "check": False, "env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"}}
        subprocess.run(["apt-get", "update", "-qq"], **quiet)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "maven"], **quiet)
    return shutil.which("mvn")


def _digests(directory: Path) -> dict[str, str]:
    found = (*directory.glob("*.jar"), *directory.glob("*.tar.gz"))
    return {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in found}


def _differences(directory: Path, listing: Path) -> list[str]:
    expected = {jar: digest for digest, jar in (line.split() for line in listing.read_text().splitlines())}
    found = _digests(directory)
    return sorted(jar for jar in expected.keys() | found.keys() if expected.get(jar) != found.get(jar))


sys.exit(main())
