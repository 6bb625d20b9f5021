"""A request, and what most of them are made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

COUNTS: Final = st.sampled_from([-2, -1, 0, 1, 2, 3, 4])
INDEXES: Final = st.lists(st.sampled_from([0, 1, 2, 9, -1]), max_size=3, unique=True)
BROKERS: Final = st.lists(st.sampled_from([1, 1, 1, 7, -1]), max_size=2)
FLAG: Final = st.booleans()


@dataclass(frozen=True)
class Ask:
    """`again`: the same question may be put again until the answer has settled."""

    key: int
    version: int
    fields: Mapping[str, Any]
    again: bool = True


def ask(
    key: int, versions: tuple[int, int], fields: Mapping[str, st.SearchStrategy[Any]], *, again: bool = True
) -> st.SearchStrategy[Ask]:
    return st.builds(
        Ask, st.just(key), st.integers(*versions), st.fixed_dictionaries(dict(fields)), again=st.just(again)
    )


def names(prefix: str, *others: str) -> st.SearchStrategy[str]:
    return st.sampled_from([f"{prefix}-a", f"{prefix}-a", f"{prefix}-b", *others])
