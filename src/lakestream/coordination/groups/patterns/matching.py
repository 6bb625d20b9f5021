"""Whether a name is what an expression says, the whole of it. All ways through the expression are walked at once, and
each step that was taken is remembered, so a list of names costs about a look into a dictionary per character."""

from typing import Final

from lakestream.coordination.groups.patterns import classes
from lakestream.coordination.groups.patterns.errors import InvalidPattern
from lakestream.coordination.groups.patterns.parsing import Alternatives, Anchor, Chars, Node, Repeat, Sequence, parse

__all__ = ["InvalidPattern", "Pattern"]

_MAX_INSTRUCTIONS: Final = 2_000
_MAX_WORK: Final = 2_000_000
"""Steps of walking that are not remembered yet: about a second in all."""

_States = frozenset[int]


class Pattern:
    """Raises `InvalidPattern` if the text is none, and in `matches` if it takes too much."""

    def __init__(self, text: str) -> None:
        self._program: list[tuple[str, frozenset[str] | str, tuple[int, ...]]] = [("match", "", ())]
        self._start = frozenset((self._compiled(parse(text), 0),))
        self._steps: dict[tuple[_States, str, str], _States] = {}
        self._ends: dict[tuple[_States, str], bool] = {}
        self._work = 0

    def matches(self, name: str) -> bool:
        states, before = self._start, ""
        for char in name:
            key = (states, before, char)
            reached = self._steps.get(key)
            if reached is None:
                reached = self._steps[key] = self._step(states, before, char)
            if not reached:
                return False
            states, before = reached, "w" if char in classes.WORDS else "-"
        ending = (states, before)
        if ending not in self._ends:
            self._ends[ending] = 0 in self._closure(states, before, "")
        return self._ends[ending]

    def _step(self, states: _States, before: str, char: str) -> _States:
        reached = set[int]()
        for state in self._closure(states, before, char):
            kind, chars, following = self._program[state]
            if kind == "chars" and char in chars:
                reached.update(following)
        return frozenset(reached)

    def _closure(self, states: _States, before: str, char: str) -> set[int]:
        """All that is reached without a character, between `before` ("": the start) and `char` ("": the end)."""
        seen, waiting = set(states), list(states)
        while waiting:
            kind, what, following = self._program[waiting.pop()]
            if kind == "split" or (kind == "anchor" and _holds(str(what), before, char)):
                new = [state for state in following if state not in seen]
                seen.update(new)
                waiting.extend(new)
        self._work += len(seen)
        if self._work > _MAX_WORK:
            raise InvalidPattern("it takes too much to match it")
        return seen

    def _add(self, kind: str, what: frozenset[str] | str, following: tuple[int, ...]) -> int:
        if len(self._program) >= _MAX_INSTRUCTIONS:
            raise InvalidPattern(f"it is too large: more than {_MAX_INSTRUCTIONS} steps")
        self._program.append((kind, what, following))
        return len(self._program) - 1

    def _compiled(self, node: Node, after: int) -> int:
        """Where the part begins that goes on at `after`."""
        match node:
            case Chars(chars):
                return self._add("chars", chars, (after,))
            case Anchor(kind):
                return self._add("anchor", kind, (after,))
            case Sequence(parts):
                for part in reversed(parts):
                    after = self._compiled(part, after)
                return after
            case Alternatives(parts):
                return self._add("split", "", tuple(self._compiled(part, after) for part in parts))
            case Repeat(part, least, most):
                return self._repeated(part, least, most, after)

    def _repeated(self, part: Node, least: int, most: int | None, after: int) -> int:
        if most is None:
            again = self._add("split", "", ())
            self._program[again] = ("split", "", (self._compiled(part, again), after))
            start = again
        else:
            start = after
            for _ in range(most - least):
                start = self._add("split", "", (self._compiled(part, start), after))
        for _ in range(least):
            start = self._compiled(part, start)
        return start


def _holds(anchor: str, before: str, char: str) -> bool:
    if anchor == "start":
        return not before
    if anchor == "end":
        return not char
    is_edge = (before == "w") != (char in classes.WORDS and char != "")
    return is_edge if anchor == "edge" else not is_edge
