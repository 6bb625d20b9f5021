"""Manifests stay few and small, whatever is committed, and no commit pays for many others."""

from hypothesis import given
from hypothesis import strategies as st

from lakestream.catalog.manifests.merge import FAN_IN, MANY_MANIFESTS, MAX_ENTRIES, MERGED_ENTRIES, Size, plan_merges


def commit(manifests: list[tuple[int, int]], spec_id: int, entries: int) -> tuple[list[tuple[int, int]], int]:
    """The table's (spec, entries) after a commit that adds one manifest, and how many entries it rewrote."""
    groups = plan_merges([Size(position, *manifest) for position, manifest in enumerate(manifests)])
    merged = {position for group in groups for position in group}
    assert len(merged) == sum(map(len, groups))
    kept = [manifest for position, manifest in enumerate(manifests) if position not in merged]
    rewritten = 0
    for group in groups:
        assert len({manifests[position][0] for position in group}) == 1
        assert len(group) > 1
        total = sum(manifests[position][1] for position in group)
        rewritten += total
        kept.append((manifests[group[0]][0], total))
    return [*kept, (spec_id, entries)], rewritten


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 400)), max_size=400))
def test_small_manifests_stay_few_and_entries_are_rewritten_a_few_times(commits: list[tuple[int, int]]) -> None:
    manifests: list[tuple[int, int]] = []
    rewritten = total = 0
    for spec_id, entries in commits:
        manifests, work = commit(manifests, spec_id, entries)
        assert work <= MERGED_ENTRIES
        rewritten += work
        total += entries
        small = [manifest for manifest in manifests if 2 * manifest[1] <= MERGED_ENTRIES]
        assert len(small) <= 2 * 3 * (FAN_IN + 1)
    assert sum(entries for _, entries in manifests) == total
    assert rewritten <= 5 * total


def test_a_thousand_commits_of_one_file_leave_few_manifests() -> None:
    manifests: list[tuple[int, int]] = []
    for _ in range(1000):
        manifests, work = commit(manifests, 0, 1)
        assert work <= MERGED_ENTRIES
    assert len(manifests) <= 3 * FAN_IN


def test_a_large_table_has_larger_manifests() -> None:
    """As many files again and again: their manifests grow in number more slowly than the table."""
    manifests = [(0, MERGED_ENTRIES)] * MANY_MANIFESTS
    for _ in range(4000):
        manifests, work = commit(manifests, 0, MERGED_ENTRIES // 2)
        assert work <= MAX_ENTRIES
    assert sum(entries for _, entries in manifests) == MERGED_ENTRIES * MANY_MANIFESTS + 4000 * (MERGED_ENTRIES // 2)
    assert len(manifests) < 1.2 * MANY_MANIFESTS


def test_full_manifests_and_small_groups_are_left_alone() -> None:
    assert plan_merges([Size(position, 0, MAX_ENTRIES) for position in range(50)]) == []
    assert plan_merges([Size(position, 0, MERGED_ENTRIES) for position in range(50)]) == []
    assert plan_merges([Size(position, 0, 1) for position in range(FAN_IN - 1)]) == []
    assert plan_merges([Size(position, position % 2, 1) for position in range(FAN_IN)]) == []
    assert plan_merges([Size(position, 0, 1) for position in range(FAN_IN)]) == [list(range(FAN_IN))]


def test_what_a_commit_cannot_afford_waits_for_the_next() -> None:
    sizes = [Size(position, 0, 100) for position in range(FAN_IN)]
    assert plan_merges(sizes) == [[0, 1, 2]]
    assert plan_merges([*sizes, *(Size(FAN_IN + position, 0, 1) for position in range(FAN_IN))]) == [
        list(range(FAN_IN, 2 * FAN_IN)),
        [0, 1],
    ]
