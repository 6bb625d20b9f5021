"""Addresses as people write them."""

import pytest

from lakestream.runtime import format_host_port, parse_host_port


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("box:9092", ("box", 9092)),
        (" broker.example.org:1 ", ("broker.example.org", 1)),
        ("10.0.0.7:65535", ("10.0.0.7", 65535)),
        ("[fe80::1]:9092", ("fe80::1", 9092)),
    ],
)
def test_host_and_port_are_told_apart_and_written_again(text: str, found: tuple[str, int]) -> None:
    assert parse_host_port(text) == found
    assert format_host_port(*found) == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "box",
        "9092",
        ":9092",
        "box:",
        "box:x",
        "box:0",
        "box:65536",
        "box:-1",
        "fe80::1:9092",
        "a b:1",
        "http://box:1",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write host:port|others can reach"):
        parse_host_port(text)


@pytest.mark.parametrize("text", ["0.0.0.0:9092", "[::]:9092"])
def test_nobody_can_call_an_address_that_one_listens_on(text: str) -> None:
    with pytest.raises(ValueError, match="others can reach"):
        parse_host_port(text)
