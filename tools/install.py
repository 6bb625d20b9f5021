"""Installs what a lock file names into the venv whose Python runs this: `install.py requirements.lock`.

uv does it, itself installed by pip from tools/uv.lock: it downloads side by side and compiles no bytecode that nobody
may import. It does not read pip's configuration, so what pip was told of the package index is passed on: files and
environment alike, as `pip config list` shows them. What the user told uv itself (`UV_…`) wins. Several indexes are
looked through for the locked version, as pip does: the hash, not the index, says that a package is the right one.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
UV = Path(sys.executable).with_name("uv")
PASSED_ON = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}
WEAKEST_FIRST = ("global", "install", ":env:")
# PySpark is a source archive: the wheel that is made of it lives for a moment, and compressing it takes longest.
UNCOMPRESSED = ["--config-settings-package", "pyspark:--build-option=--compression=stored"]


def main() -> int:
    own = [*PIP, "install", "--quiet", "--require-hashes", "--no-deps", "-r", ROOT / "tools" / "uv.lock"]
    if subprocess.run(own, check=False).returncode:
        return 1
    environment = {"UV_INDEX_STRATEGY": "unsafe-best-match", **uv_settings(), **os.environ, "VIRTUAL_ENV": sys.prefix}
    locked = ["--require-hashes", "--build-constraints", ROOT / "requirements.lock", *UNCOMPRESSED, "-r", sys.argv[1]]
    itself = ["--quiet", "--no-build-isolation", "--editable", ROOT]
    for what in (locked, itself):
        done = subprocess.run([UV, "pip", "install", "--no-deps", *what], env=environment, check=False)
        if done.returncode:
            return done.returncode
    return 0


def uv_settings() -> dict[str, str]:
    """What pip knows of the package index, in uv's variables."""
    listed = subprocess.run([*PIP, "config", "list"], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if key in PASSED_ON:
            found[section, key] = ("," if key == "find-links" else " ").join(ast.literal_eval(value).split())
    return {PASSED_ON[key]: found[section, key] for section in WEAKEST_FIRST for at, key in found if at == section}


if __name__ == "__main__":
    raise SystemExit(main())
