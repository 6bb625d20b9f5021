"""Iceberg's REST compatibility kit, as its authors wrote it, against the HTTP door as a process of its own."""

import os
import subprocess
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from conftest import need
from support.worlds.processes import HOST, Running, free_ports

pytestmark = [pytest.mark.java, pytest.mark.slow]

REFERENCE_PASSES = 144
"""How many of the kit's 157 tests Iceberg's own reference server passes."""
KNOWN_FAILURES: dict[str, str] = {}
"""Test → why it cannot pass here. Empty, and meant to stay so."""
SUITE = "org.apache.iceberg.rest.RESTCompatibilityKitSuite"
OPTIONS = ("-Drck.requires-namespace-create=true", "-Drck.supports-names-with-dot=true")
KIT_S = 400.0


@pytest.fixture
def kit_jars() -> str:
    cache = Path(__file__).parents[2] / ".cache" / "rck"
    given = os.environ.get("LAKESTREAM_RCK_JARS") or (str(cache) if cache.is_dir() else None)
    return need(given, "Iceberg's REST compatibility kit (LAKESTREAM_RCK_JARS)")


@pytest.fixture
def catalog(start: Callable[..., Running], tmp_path: Path) -> str:
    """The address of a catalog with nothing in it."""
    port = free_ports()
    # The kit chooses places of its own for some tables and views.
    allowed = f"file:///tmp,file://{tmp_path}/kit"
    door = start(
        "http",
        "--port",
        str(port),
        "--data",
        str(tmp_path / "data"),
        environment={"LAKESTREAM_HTTP_LOCATIONS": allowed},
    )
    deadline = time.monotonic() + 60
    while True:
        assert door.process.poll() is None, door.output
        try:
            httpx.get(f"http://{HOST}:{port}/health", timeout=5).raise_for_status()
            break
        except httpx.HTTPError:
            assert time.monotonic() < deadline, door.output
            time.sleep(0.1)
    return f"http://{HOST}:{port}/iceberg"


def outcomes(reports: Path) -> dict[str, Counter[str]]:
    """Outcome → tests by class, from JUnit's XML reports."""
    found: dict[str, Counter[str]] = {}
    for file in reports.glob("TEST-*.xml"):
        for case in ET.parse(file).getroot().iter("testcase"):
            kind = case.attrib["classname"].rsplit(".", 1)[-1]
            outcome = "passed"
            if case.find("failure") is not None or case.find("error") is not None:
                outcome = "failed"
            elif case.find("skipped") is not None:
                outcome = "skipped"
            found.setdefault(outcome, Counter())[f"{kind}.{case.attrib['name']}"] += 1
    return found


def test_the_kit_passes(java: str, kit_jars: str, catalog: str, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    (tmp_path / "kit").mkdir()
    command = [java, "-Xmx1g", f"-Djava.io.tmpdir={tmp_path}/kit", "-Drck.local=false", *OPTIONS]
    command += ["-cp", f"{kit_jars}/*", "org.junit.platform.console.ConsoleLauncher", "execute"]
    command += ["--select-class", SUITE, "--include-classname", ".*", "--reports-dir", str(reports)]
    command += ["--details", "none", "--disable-banner", "--disable-ansi-colors"]
    with (tmp_path / "kit.log").open("wb") as log:
        env = os.environ | {"CATALOG_URI": catalog}
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, timeout=KIT_S, check=False)
    said = (tmp_path / "kit.log").read_text(errors="replace")
    found = outcomes(reports)
    assert found, said[-4000:]
    failed = sorted(found.get("failed", Counter()))
    assert [name for name in failed if name not in KNOWN_FAILURES] == [], said[-8000:]
    passed = sum(found["passed"].values())
    assert passed >= REFERENCE_PASSES, f"{passed} passed; skipped: {sorted(found.get('skipped', Counter()))}"
