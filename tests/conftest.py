"""What tests share: real processes in temporary directories on free ports, stopped by their own ids."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from support.properties import examples
from support.servers.hive import hive_archive, metastore, on_postgres
from support.servers.nessie import nessie, nessie_jar
from support.servers.oxia import oxia_program, real_oxia
from support.servers.postgres import postgres, postgres_programs
from support.servers.s3 import make_bucket, s3_server
from support.worlds.processes import ProcessWorld, Running, free_ports

SERVERS = ("spark", "nessie_uri", "hive_uri", "postgres_uri", "oxia_url", "aws_address", "s3_address")
"""Fixtures of a whole run that start a server, the dearest first."""
SERVER_OF_KIND = {
    "nessie": "nessie_uri",
    "hive": "hive_uri",
    "postgres": "postgres_uri",
    "oxia-server": "oxia_url",
    "glue": "aws_address",
    "s3": "s3_address",
    "s3, ends at once": "s3_address",
}
"""For tests that have the server by a parameter's name."""

FROM_STORES = {"LAKESTREAM_STREAM_TAIL_CACHE_BYTES": "0"}
"""Brokers keep nothing that was appended in memory: what tests read comes from where it is stored."""
STRICT = os.environ.get("CI", "").lower() == "true" or bool(os.environ.get("LAKESTREAM_REQUIRE_ALL"))


settings.register_profile("lakestream", examples(100))
settings.load_profile("lakestream")


def need(found: str | None, what: str) -> str:
    """What a test cannot do without."""
    if not found:
        pytest.skip(f"{what} is missing: `make test` or `make test-all` fetches it")
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip is a failure where everything must run, whatever its reason."""
    report = yield
    if STRICT and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason}\nNothing may be skipped where CI=true or LAKESTREAM_REQUIRE_ALL is set."
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a server run in one worker, so that a run starts it once: those of a server of the whole run,
    and those of a file which starts one for itself. All others go wherever there is room."""
    for item in items:
        if item.get_closest_marker("xdist_group"):
            continue
        shared = _servers(item)
        if shared:
            item.add_marker(pytest.mark.xdist_group(shared[0]))
        elif _shares_within_its_file(item):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def _servers(item: pytest.Item) -> list[str]:
    """The servers that a test wants, the dearest first. Some are named by a parameter, such as `hive on memory`."""
    parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
    kinds = {value.partition(" on ")[0] for value in parameters if isinstance(value, str)}
    wanted = {*getattr(item, "fixturenames", ()), *(SERVER_OF_KIND[kind] for kind in kinds & SERVER_OF_KIND.keys())}
    return [server for server in SERVERS if server in wanted]


def _shares_within_its_file(item: pytest.Item) -> bool:
    found = getattr(item, "_fixtureinfo", None)
    fixtures = found.name2fixturedefs.items() if found else ()
    return any(made[-1].scope == "module" and not name.startswith("_") for name, made in fixtures)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Names a failure when it happens: the summary comes many minutes later."""
    if report.failed:
        print(f"\n{report.nodeid} failed ({report.when}, {report.duration:.1f} s)", flush=True)


@pytest.fixture(scope="session")
def java() -> str:
    """The java program."""
    home = os.environ.get("JAVA_HOME")
    return need(str(Path(home) / "bin" / "java") if home else shutil.which("java"), "Java 17+")


@pytest.fixture(scope="session")
def kafka_libs() -> str:
    """The directory of Apache Kafka's jars."""
    return need(os.environ.get("LAKESTREAM_KAFKA_LIBS"), "Kafka's command line tools (LAKESTREAM_KAFKA_LIBS)")


@pytest.fixture(scope="session")
def kcat() -> str:
    """Debian's kcat, a client that is several years older than the others."""
    return need(shutil.which("kcat"), "kcat, an older librdkafka (apt-get install kcat)")


@pytest.fixture(scope="session")
def aws_address() -> Iterator[str]:
    """The address of a server that is S3, with a bucket `lake`, and Glue."""
    with s3_server() as address:
        make_bucket(address, "lake")
        yield address


@pytest.fixture(scope="session")
def nessie_uri(aws_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real Nessie, whose warehouse is that bucket."""
    jar = need(nessie_jar(), "the Nessie server (LAKESTREAM_NESSIE_JARS)")
    with nessie(jar, tmp_path_factory.mktemp("nessie"), "lake", aws_address) as uri:
        yield uri


@pytest.fixture(scope="session")
def postgres_uri() -> Iterator[str]:
    """The address of a real PostgreSQL, as SQLAlchemy has it."""
    with postgres(need(postgres_programs(), "PostgreSQL (initdb and postgres)")) as uri:
        yield uri


@pytest.fixture(scope="session")
def oxia_url() -> Iterator[str]:
    """Of a real Oxia server, which takes one writer a shard at a time."""
    with real_oxia(need(oxia_program(), "the Oxia server (make oxia)")) as url:
        yield url


@pytest.fixture(scope="session")
def hive_uri(java: str, postgres_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real Hive Metastore on PostgreSQL."""
    archive = need(hive_archive("4"), "the Hive Metastore 4 (LAKESTREAM_HIVE_JARS)")
    with metastore(java, archive, tmp_path_factory.mktemp("hive"), on_postgres(postgres_uri)) as uri:
        yield uri


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts `lakestream <arguments>` as a process; whatever still runs at the end of the test is killed."""
    started: list[Running] = []

    def run(*arguments: str, environment: Mapping[str, str] | None = None) -> Running:
        log = tmp_path / f"output-{len(started)}.log"
        command = [sys.executable, "-m", "lakestream.cli", *arguments]
        env = os.environ | FROM_STORES | dict(environment or {})
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env)
        running = Running(process, log)
        started.append(running)
        return running

    yield run
    for running in started:
        if running.process.poll() is None:
            running.kill()


@pytest.fixture
def cluster(tmp_path: Path, start: Callable[..., Running]) -> Callable[..., ProcessWorld]:
    """Makes a cluster of real broker processes: `cluster(brokers=3, http=True, environment={…})`."""

    def make(brokers: int = 1, *, http: bool = False, environment: Mapping[str, str] | None = None) -> ProcessWorld:
        made = ProcessWorld(tmp_path / "data", environment or {}, start)
        first = free_ports(brokers)
        made.ports = [first + index for index in range(brokers)]
        for index in range(brokers):
            made.start_broker(index)
        if http:
            made.start_http()
        return made

    return make


@pytest.fixture
def cli() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs `lakestream <arguments>` to its end."""

    def run(
        *arguments: str,
        stdin: str | None = None,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> "subprocess.CompletedProcess[str]":
        command: Sequence[str] = [sys.executable, "-m", "lakestream.cli", *arguments]
        env = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"} | dict(environment or {})
        return subprocess.run(
            command, input=stdin or "", capture_output=True, text=True, env=env, timeout=timeout_s, check=False
        )

    return run
