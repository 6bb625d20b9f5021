"""The served OpenAPI document is true: requests made from it, right and wrong ones, are answered as it says."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support.clients.rest import RestClient, rest_client

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
KNOWN = {"topic_name": "played", "group_name": "played", "instance": "played", "consumer_group_id": "played"}
WAITS = ("wait_ms", "timeout")


@pytest.fixture(scope="module")
def rest(door: str) -> Iterator[RestClient]:
    with rest_client(door) as client:
        client.create("played", 2)
        client.http.post("/consumers/played", json={"name": "played", "format": "binary"})
        yield client


@pytest.fixture(scope="module")
def document(rest: RestClient) -> Any:
    return schemathesis.openapi.from_url(f"{rest.door}/v3/openapi.json")


schema = schemathesis.pytest.from_fixture("document")


def settings_for(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@schema.parametrize()
@settings_for(2)
def test_answers_are_as_the_document_says(case: Any, rest: RestClient) -> None:
    play(case, rest)


@pytest.mark.slow
@schema.parametrize()
@settings_for(30)
def test_many_answers_are_as_the_document_says(case: Any, rest: RestClient) -> None:
    play(case, rest)


def play(case: Any, rest: RestClient) -> None:
    if "cluster_id" in case.path_parameters:
        case.path_parameters["cluster_id"] = rest.cluster_id
    if case.method not in ("DELETE", "PATCH"):
        case.path_parameters.update({name: value for name, value in KNOWN.items() if name in case.path_parameters})
    for name in WAITS:
        if name in (case.query or {}):
            case.query[name] = 0
    case.call_and_validate(checks=CHECKS)


def test_the_document_is_served_under_both_prefixes(rest: RestClient) -> None:
    found = [rest.http.get(f"{prefix}/v3/openapi.json").json() for prefix in ("", "/kafka")]
    assert found[0] == found[1]
    assert len(found[0]["paths"]) > 40
    ids = [operation["operationId"] for path in found[0]["paths"].values() for operation in path.values()]
    assert len(set(ids)) == len(ids)
