"""A broker whose bucket it cannot use says so when it starts, in a sentence, and ends."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support.servers.s3 import environment
from support.worlds.processes import Running, free_ports

Start = Callable[..., Running]


def refusal(start: Start, tmp_path: Path, variables: Mapping[str, str]) -> str:
    where = ("--port", str(free_ports()), "--data", str(tmp_path / "data"))
    running = start("broker", *where, environment=variables)
    assert running.process.wait(90) == 3, running.output
    return running.output.splitlines()[-1]


def test_a_bucket_that_is_not_there(start: Start, tmp_path: Path, aws_address: str) -> None:
    variables = environment(aws_address) | {"LAKESTREAM_BUCKET_URL": "s3://nobody-made-it/x"}
    assert refusal(start, tmp_path, variables) == (
        "error the bucket of s3://nobody-made-it/x does not exist: create it, or correct bucket_url"
    )


@pytest.mark.parametrize("url", ["s3:/lake", "ftp://lake", "http://127.0.0.1/lake"])
def test_an_address_that_is_no_bucket(start: Start, tmp_path: Path, url: str) -> None:
    said = refusal(start, tmp_path, {"LAKESTREAM_BUCKET_URL": url})
    assert said == (
        f"error {url!r} is no bucket: use file:///absolute/path, s3://bucket, gs://bucket or az://container"
    )
