"""A broker that is started on something that it cannot use ends at once, with one sentence that says what to change; it
has written nothing, and it never repeats a password."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from conftest import need
from support.servers.gate import DENIED, Gate, gate
from support.servers.postgres import PostgresServer, execute, postgres_programs, postgres_server
from support.servers.s3 import environment as s3_environment
from support.worlds.processes import ProcessWorld, Running, free_ports

from lakestream.cli.local.children import REFUSED

Refused = Callable[..., str]


@pytest.fixture
def refused(start: Callable[..., Running], tmp_path: Path) -> Refused:
    """What a broker says in its last line."""

    def run(**environment: str) -> str:
        place = ("--id", "0", "--port", str(free_ports()), "--data", str(tmp_path / "data"))
        running = start("broker", *place, environment=environment)
        assert running.process.wait(60) == REFUSED, running.output
        assert "s3cret" not in running.output
        assert "Traceback" not in running.output
        return running.output.splitlines()[-1]

    return run


@pytest.fixture
def bucket(aws_address: str) -> Iterator[Gate]:
    with gate(aws_address) as made:
        yield made


def test_an_address_that_is_no_bucket(refused: Refused) -> None:
    assert "'s4://lake' is no bucket: use file:///absolute/path, s3://bucket" in refused(
        LAKESTREAM_BUCKET_URL="s4://lake"
    )


def test_a_bucket_that_is_not_there(refused: Refused, aws_address: str) -> None:
    said = refused(LAKESTREAM_BUCKET_URL="s3://nowhere/lake", **s3_environment(aws_address))
    assert said == "error the bucket of s3://nowhere/lake does not exist: create it, or correct bucket_url"


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_rights_that_are_missing(refused: Refused, bucket: Gate, method: str) -> None:
    bucket.shut(DENIED, method)
    said = refused(LAKESTREAM_BUCKET_URL=f"s3://lake/{uuid4().hex}", **s3_environment(bucket.address))
    assert "access was denied, check the credentials and their rights to the bucket" in said


def test_a_clock_that_the_bucket_refuses(refused: Refused, bucket: Gate) -> None:
    bucket.shut((403, "RequestTimeTooSkewed", "The difference between the request time and ours is too large."))
    said = refused(LAKESTREAM_BUCKET_URL=f"s3://lake/{uuid4().hex}", **s3_environment(bucket.address))
    assert "the object store refuses this machine's clock, which is wrong: set it" in said


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with (
        postgres_server(need(postgres_programs(), "PostgreSQL (initdb and postgres)"), "s3cret") as server,
        server.up(),
    ):
        yield server


def test_a_wrong_password(refused: Refused, server: PostgresServer) -> None:
    said = refused(LAKESTREAM_METADATA_URL=server.url.replace("s3cret", "s3cret-not"))
    assert "refuses the user or the password" in said


def test_a_database_of_another_version(
    refused: Refused, server: PostgresServer, cluster: Callable[..., ProcessWorld]
) -> None:
    url = f"{server.url}?schema=newer"
    cluster(1, environment={"LAKESTREAM_METADATA_URL": url}).brokers[0].stop()

    execute(server, "UPDATE newer.format SET version = 99")
    assert "format 99" in refused(LAKESTREAM_METADATA_URL=url)


def test_two_clusters_on_one_bucket(
    refused: Refused, server: PostgresServer, cluster: Callable[..., ProcessWorld], aws_address: str
) -> None:
    """Two databases, one bucket, by mistake: the second is refused whether it is new or has lived elsewhere."""
    mine, theirs = (f"s3://lake/{uuid4().hex}" for _ in range(2))
    first, second = (f"{server.url}?schema={name}" for name in ("first", "second"))
    shared = s3_environment(aws_address)
    living = cluster(1, environment={"LAKESTREAM_METADATA_URL": first, "LAKESTREAM_BUCKET_URL": mine, **shared})
    said = refused(LAKESTREAM_METADATA_URL=second, LAKESTREAM_BUCKET_URL=mine, **shared)
    assert "and the metadata store is empty: restore that from a backup or rebuild it with `lakestream recover`" in said
    cluster(1, environment={"LAKESTREAM_METADATA_URL": second, "LAKESTREAM_BUCKET_URL": theirs, **shared}).brokers[
        0
    ].stop()
    said = refused(LAKESTREAM_METADATA_URL=second, LAKESTREAM_BUCKET_URL=mine, **shared)
    assert "give both of one cluster" in said
    assert living.brokers[0].process.poll() is None
