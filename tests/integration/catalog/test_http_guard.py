"""What a web page makes a browser send to the HTTP door is refused; what clients send is not."""

from collections.abc import Iterator

import httpx
import pytest
from support.tables.files import Door, open_door


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with open_door(tmp_path_factory.mktemp("door")) as opened:
        yield opened


def post(door: Door, **headers: str) -> httpx.Response:
    return httpx.post(
        f"{door.uri}/v1/namespaces",
        content=b'{"namespace": ["one"]}',
        headers={
            "Content-Type": "application/json",
            **{name.replace("_", "-"): text for name, text in headers.items()},
        },
    )


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8181", "127.0.0.1.evil.example", "10.1.2.3", "", "[::1", "localhost.evil"]
)
def test_a_strangers_name_for_us_is_refused(door: Door, host: str) -> None:
    for path in ("/iceberg/v1/config", "/health", "/metrics"):
        answer = httpx.get(door.uri.removesuffix("/iceberg") + path, headers={"Host": host})
        assert answer.status_code in (400, 421)
    assert post(door, Host=host).status_code in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1", "LOCALHOST:8181", "[::1]:8181"])
def test_our_own_names_pass(door: Door, host: str) -> None:
    assert httpx.get(f"{door.uri}/v1/config", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost", "", "http://["]
)
def test_requests_of_other_pages_are_refused(door: Door, origin: str) -> None:
    assert post(door, Origin=origin).status_code == 403
    assert httpx.get(f"{door.uri}/v1/namespaces", headers={"Origin": origin}).status_code == 403
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    answer = httpx.options(f"{door.uri}/v1/namespaces", headers=asked)
    assert answer.status_code == 403
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_a_page_cannot_hide_where_it_is(door: Door) -> None:
    assert post(door, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status_code == 403
    assert post(door, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status_code == 403
    url = door.uri.removesuffix("/iceberg") + "/health"
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert httpx.get(url, headers=followed).status_code == 200
    own = door.uri.removesuffix("/iceberg")
    assert httpx.get(url, headers={"Origin": own, "Sec-Fetch-Site": "same-origin"}).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_says_that_it_is_json(door: Door, kind: str) -> None:
    answer = post(door, Content_Type=kind)
    assert (answer.status_code, answer.json()["error"]["type"]) == (415, "BadRequestException")
    assert httpx.get(f"{door.uri}/v1/namespaces").json() == {"namespaces": []}


def test_json_with_a_charset_is_json(door: Door) -> None:
    assert post(door, Content_Type="application/json; charset=utf-8").status_code == 200
    assert httpx.delete(f"{door.uri}/v1/namespaces/one").status_code == 204
