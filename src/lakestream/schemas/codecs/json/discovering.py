"""Templates out of the texts of a tile: what a text does not tell is taken from those before it, or guessed.

A guess may be wrong: then the template does not make the next text, and that one tells more.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import msgspec

from lakestream.schemas.codecs.json.escaping import EscapesSeen
from lakestream.schemas.codecs.json.numbers import NUMBER_FORMS, NumberForm, forms_of
from lakestream.schemas.codecs.json.raw import NULL, RawArray, RawLeaf, RawMember, RawNode, RawObject, parse_raw
from lakestream.schemas.codecs.json.template import (
    ArrayNode,
    Leaf,
    LeafName,
    MapNode,
    MemberNode,
    Node,
    ObjectNode,
    Spaces,
    Template,
)
from lakestream.schemas.codecs.json.times import TimeForm, TimeText, seen_in
from lakestream.schemas.codecs.json.writing import leaf_kind
from lakestream.schemas.codecs.slots import ColumnSlot
from lakestream.schemas.mapping import ROOT, source_of

COMPACT: Final = Spaces()


class Discoverer:
    """Of the texts of one tile. It remembers what they told."""

    def __init__(self, roots: Sequence[ColumnSlot]) -> None:
        self._roots = roots
        self._escapes = EscapesSeen()
        self._last: Node | None = None
        self._numbers: Counter[NumberForm] = Counter()
        self._fractions: set[int] = set()
        self._time: TimeForm | None = None

    def template_of(self, text: str, *, is_object: bool) -> Template:
        """Perhaps one that makes this text of the columns that were made of it. `is_object`: the columns are those of
        an object's fields."""
        before, value, after = parse_raw(text)
        look = _Look(value)
        self._see(look)
        builder = _Builder(self, look)
        if isinstance(value, RawObject) and is_object:
            last = self._last if isinstance(self._last, ObjectNode) else None
            root: Node = builder.object([value], self._roots, last)
        else:
            [slot] = [each for each in self._roots if source_of(each.column) == ROOT]
            root = builder.node([value], slot, self._last)
        self._last = root
        return Template(root, self._escapes.escapes(look.strings), before, after)

    def _see(self, look: "_Look") -> None:
        for text in look.numbers:
            self._numbers.update(form for form in forms_of(text) if form.decimals < 0)
        for found in look.times:
            self._fractions.add(len(found.digits))

    def number_form(self, texts: Sequence[str], before: NumberForm | None) -> NumberForm:
        """In which these are written: the one that was told before if it can be."""
        choices: list[NumberForm] | None = None
        for text in texts:
            found = list(forms_of(text))
            choices = found if choices is None else [each for each in choices if each in found]
        if not choices:
            choices = list(forms_of(texts[-1])) if texts else []
        if before is not None and (before in choices or not choices):
            return before
        likely = max(NUMBER_FORMS, key=lambda form: (self._numbers[form], -NUMBER_FORMS.index(form)))
        return likely if likely in choices or not choices else choices[0]

    def time_form(self, texts: Sequence[TimeText], before: TimeForm | None) -> TimeForm:
        if not texts:
            return before or self._time or TimeForm()
        last = texts[-1]
        wanted: list[int | str] = [self._fraction()]
        if before is not None:
            wanted.append(before.fraction)
        fraction = next((each for each in wanted if all(text.has(each) for text in texts)), len(last.digits))
        self._time = TimeForm(last.separator, fraction, last.zone)
        return self._time

    def _fraction(self) -> int | str:
        seen = self._fractions
        if not seen <= {0, 3, 6}:
            return "trimmed"
        if len(seen) == 1 and 6 not in seen:
            return next(iter(seen))
        return "thousands" if 3 in seen else "six"


@dataclass(slots=True)
class _Look:
    """What there is of each kind in a text, wherever it is."""

    strings: list[str]
    numbers: list[str]
    times: list[TimeText]
    colons: Counter[str]
    objects: list[RawObject]
    arrays: list[RawArray]
    has_null: bool = False

    def __init__(self, root: RawNode) -> None:
        self.strings, self.numbers, self.times, self.colons = [], [], [], Counter()
        self.objects, self.arrays, self.has_null = [], [], False
        for node in _all(root):
            if isinstance(node, RawObject):
                self.objects.append(node)
                self.has_null |= any(member.value == NULL for member in node.members)
                self.strings += (member.key[: member.key.rindex('"') + 1] for member in node.members)
                self.colons.update(member.key[member.key.rindex('"') + 1 :] for member in node.members)
            elif isinstance(node, RawArray):
                self.arrays.append(node)
            elif node.text[0] == '"':
                self.strings.append(node.text)
                found = seen_in(node.text[1:-1])
                self.times += [] if found is None else [found]
            elif node.text[-1].isdigit() and not node.text.lstrip("-").isdigit():
                self.numbers.append(node.text)

    @property
    def colon(self) -> str:
        return self.colons.most_common(1)[0][0] if self.colons else ":"

    @property
    def spaces(self) -> Spaces:
        """Of what is not there."""
        brackets: list[RawObject | RawArray] = [*self.objects, *self.arrays]
        found = [each.spaces for each in brackets if each.spaces.between != ","]
        return Spaces(between=found[0].between) if found and "\n" not in found[0].between else COMPACT


def _all(node: RawNode) -> Iterator[RawNode]:
    yield node
    if isinstance(node, RawObject):
        for member in node.members:
            yield from _all(member.value)
    elif isinstance(node, RawArray):
        for item in node.items:
            yield from _all(item)


class _Builder:
    """Of one template."""

    def __init__(self, seen: Discoverer, look: _Look) -> None:
        self._seen = seen
        self._look = look

    def node(self, found: Sequence[RawNode], slot: ColumnSlot, last: Node | None) -> Node:
        """`found`: the values at this place, if there are any; `last`: what was told of it before."""
        values = [each for each in found if each != NULL]
        kind = leaf_kind(slot.column)
        if kind is not None:
            return self._leaf(kind, values, last)
        if slot.column.kind == "struct":
            objects = [each for each in values if isinstance(each, RawObject)]
            return self.object(objects, slot.below, last if isinstance(last, ObjectNode) else None)
        if slot.column.kind == "list":
            return self._array([each for each in values if isinstance(each, RawArray)], slot, last)
        return self._map([each for each in values if isinstance(each, RawObject)], slot, last)

    def _leaf(self, kind: LeafName, values: Sequence[RawNode], last: Node | None) -> Leaf:
        texts = [each.text for each in values if isinstance(each, RawLeaf)]
        form = last.form if isinstance(last, Leaf) else None
        if kind == "double":
            return Leaf(kind, self._seen.number_form(texts, form if isinstance(form, NumberForm) else None))
        if kind == "time":
            times = [each for each in (seen_in(text[1:-1]) for text in texts) if each is not None]
            return Leaf(kind, self._seen.time_form(times, form if isinstance(form, TimeForm) else None))
        return Leaf(kind)

    def _array(self, values: Sequence[RawArray], slot: ColumnSlot, last: Node | None) -> ArrayNode:
        before = last if isinstance(last, ArrayNode) else None
        items = self.node(
            [item for each in values for item in each.items], slot.below[0], before.items if before else None
        )
        return ArrayNode(items, self._spaces(values, before.spaces if before else None))

    def _map(self, values: Sequence[RawObject], slot: ColumnSlot, last: Node | None) -> MapNode:
        before = last if isinstance(last, MapNode) else None
        members = [member for each in values for member in each.members]
        below = self.node([member.value for member in members], slot.below[1], before.values if before else None)
        colon = members[0].key[members[0].key.rindex('"') + 1 :] if members else before.colon if before else None
        return MapNode(below, self._spaces(values, before.spaces if before else None), colon or self._look.colon)

    def _spaces(self, values: Sequence[RawObject | RawArray], before: Spaces | None) -> Spaces:
        """Each part from a value that has it."""
        guess = before or self._look.spaces
        full = [each.spaces for each in values if _size(each)]
        many = [each.spaces for each in values if _size(each) > 1]
        none = [each.spaces for each in values if not _size(each)]
        return Spaces(
            full[0].first if full else guess.first,
            many[0].between if many else guess.between,
            full[0].last if full else guess.last,
            none[0].empty if none else guess.empty,
        )

    def object(self, found: Sequence[RawObject], slots: Sequence[ColumnSlot], last: ObjectNode | None) -> ObjectNode:
        by_name = {source_of(slot.column): slot for slot in slots}
        before = {member.name: member for member in last.members} if last else {}
        lists = [[member.name for member in each.members] for each in found]
        names = merged_order([*lists, [*before], [*by_name]])
        spaces = self._spaces(found, last.spaces if last else None)
        members = (
            self._member(name, found, by_name[name], before.get(name), spaces) for name in names if name in by_name
        )
        return ObjectNode(tuple(members), spaces)

    def _member(
        self, name: str, found: Sequence[RawObject], slot: ColumnSlot, before: MemberNode | None, spaces: Spaces
    ) -> MemberNode:
        own = [member for each in found for member in each.members if member.name == name]
        node = self.node([each.value for each in own], slot, before.node if before else None)
        key = own[0].key if own else before.key if before else _key(name, self._look.colon)
        between = next((each.between for each in own if each.between is not None), None)
        return MemberNode(
            key, node, self._is_left_out(own, found, before), None if between in (None, spaces.between) else between
        )

    def _is_left_out(self, own: Sequence[RawMember], found: Sequence[RawObject], before: MemberNode | None) -> bool:
        """Where it is null: as this text has it, or those before, or else as this one has others."""
        if any(each.value == NULL for each in own):
            return False
        if len(own) < len(found):
            return True
        if before is not None:
            return before.is_left_out
        return not self._look.has_null


def _size(value: RawObject | RawArray) -> int:
    return len(value.members) if isinstance(value, RawObject) else len(value.items)


def _key(name: str, colon: str) -> str:
    return msgspec.json.encode(name).decode() + colon


def merged_order(lists: Iterable[Sequence[str]]) -> list[str]:
    """All names, those of the first list in its order, each other one behind the one that it follows in its list."""
    following: dict[str | None, list[str]] = {}
    known: set[str | None] = {None}
    for names in lists:
        for before, name in pairwise([None, *names]):
            if name is not None and name not in known:
                known.add(name)
                following.setdefault(before, []).insert(0, name)
    order: list[str] = []
    todo: list[str] = list(reversed(following.get(None, [])))
    while todo:
        name = todo.pop()
        order.append(name)
        todo += reversed(following.get(name, []))
    return order
