"""Which manifests to merge. Pure.

Manifests are merged like the levels of a log-structured tree: whenever `FAN_IN` of one spec and one order of magnitude
have gathered, but no commit rewrites more than `MERGED_ENTRIES`: what is left is the next one's. So an entry is
rewritten a few times in its life, a table has few small manifests at any time, and no commit pays for many others.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_ENTRIES: Final = 1000
"""Of a manifest that a commit writes for what it adds."""
MERGED_ENTRIES: Final = 300
"""That one commit rewrites to merge manifests, and so the most that a merged one has."""
MERGEABLE_ENTRIES: Final = MERGED_ENTRIES // 2
"""The most that a manifest has which is merged, as long as there are not many."""
MANY_MANIFESTS: Final = 1000
"""From here on a commit merges up to `MAX_ENTRIES`: every commit lists all manifests, and every view is put together
from them, so that more of them would cost each commit what larger merges cost few."""
FAN_IN: Final = 10


@dataclass(frozen=True, slots=True)
class Size:
    """One data manifest: its place in the manifest list, its spec, and how many live entries it has."""

    position: int
    spec_id: int
    entries: int


def plan_merges(sizes: Sequence[Size]) -> list[list[int]]:
    """Groups of positions to merge into one another's place, the smallest manifests first."""
    left = MERGED_ENTRIES if len(sizes) < MANY_MANIFESTS else MAX_ENTRIES
    levels: dict[tuple[int, int], list[Size]] = defaultdict(list)
    for size in sizes:
        if 2 * size.entries <= left:
            levels[_level(size.entries), size.spec_id].append(size)
    groups = []
    for _, gathered in sorted(levels.items()):
        if len(gathered) >= FAN_IN:
            group = []
            for size in gathered:
                if size.entries <= left:
                    group.append(size.position)
                    left -= size.entries
            if len(group) > 1:
                groups.append(group)
    return groups


def _level(entries: int) -> int:
    return len(str(max(entries, 1)))
