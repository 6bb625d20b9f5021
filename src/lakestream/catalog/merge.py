"""Which manifests to merge. Pure.

Manifests are merged like the levels of a log-structured tree: whenever `FAN_IN` of one spec and one
order of magnitude have gathered. An entry is so rewritten at most a few times in its life, a table
has few small manifests at any time, and no manifest names more than `MAX_ENTRIES` files.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_ENTRIES: Final = 1000
FAN_IN: Final = 10


@dataclass(frozen=True, slots=True)
class Size:
    """One data manifest: its place in the manifest list, its spec, and how many live entries it has."""

    position: int
    spec_id: int
    entries: int


def plan_merges(sizes: Sequence[Size]) -> list[list[int]]:
    """Groups of positions to merge into one another's place. Full manifests are left alone."""
    levels: dict[tuple[int, int], list[int]] = defaultdict(list)
    for size in sizes:
        if size.entries < MAX_ENTRIES:
            levels[size.spec_id, _level(size.entries)].append(size.position)
    return [positions for _, positions in sorted(levels.items()) if len(positions) >= FAN_IN]


def _level(entries: int) -> int:
    return len(str(max(entries, 1)))
