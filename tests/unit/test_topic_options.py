"""What a topic may be told, and what it says of what it cannot."""

import asyncio

import pytest

from lakestream.errors import InvalidSetting
from lakestream.metadata.memory import MemoryStore
from lakestream.metadata.options import OPTIONS, topic_options
from lakestream.metadata.topics import Topics
from lakestream.runtime import system


def test_without_settings_every_default_holds() -> None:
    options = topic_options({})
    assert (options.retention_ms, options.compacts, options.deletes) == (-1, False, True)
    assert options == topic_options({option.name: option.default for option in OPTIONS})


def test_settings_of_others_are_left_alone() -> None:
    assert topic_options({"segment.bytes": "what ever"}) == topic_options({})


def test_both_policies_and_both_formats() -> None:
    options = topic_options({"cleanup.policy": "compact, delete", "lakestream.table.formats": "delta,iceberg"})
    assert options.compacts
    assert options.deletes
    assert options.table_formats == ("iceberg", "delta")


def test_switches_are_true_or_false_in_any_case() -> None:
    assert topic_options({}).table_merges
    assert topic_options({"lakestream.table.merge.enable": " TRUE "}).table_merges
    assert not topic_options({"lakestream.table.merge.enable": "False"}).table_merges


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("retention.bytes", "1.5"),
        ("retention.bytes", str(1 << 63)),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", ""),
        ("lakestream.table.formats", "delta"),
        ("lakestream.table.formats", "iceberg,hudi"),
        ("lakestream.table.commit.interval.ms", "-1"),
        ("lakestream.table.merge.enable", "perhaps"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_nothing_is_made(name: str, value: str) -> None:
    async def main() -> None:
        topics = Topics(MemoryStore(system()), system())
        with pytest.raises(InvalidSetting, match=name):
            await topics.create("t", 1, {name: value})
        assert await topics.list() == []

    asyncio.run(main())
