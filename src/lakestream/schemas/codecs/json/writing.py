"""A template as the program that makes texts of the columns of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from lakestream.schemas.codecs.json.numbers import NUMBER_FORMS, NumberForm
from lakestream.schemas.codecs.json.template import (
    LINE_ENDS,
    SHORT,
    ArrayNode,
    Escapes,
    Leaf,
    LeafName,
    MapNode,
    MemberNode,
    Node,
    ObjectNode,
    Spaces,
    Template,
)
from lakestream.schemas.codecs.json.times import TimeForm
from lakestream.schemas.codecs.kernels.json.layout import CODE_FORM, RAW_FORM, WriteOp
from lakestream.schemas.codecs.layout import INSTRUCTION_WORDS
from lakestream.schemas.codecs.slots import ColumnSlot
from lakestream.schemas.json import JsonType
from lakestream.schemas.mapping import ROOT, source_of
from lakestream.table.shape import TableColumn

_OPS: Final[Mapping[LeafName, WriteOp]] = {
    "string": WriteOp.STRING,
    "long": WriteOp.LONG,
    "double": WriteOp.DOUBLE,
    "boolean": WriteOp.BOOLEAN,
    "date": WriteOp.DATE,
    "time": WriteOp.TIME,
    "json": WriteOp.JSON,
}
MUST_ESCAPE: Final = frozenset({'"', "\\", *map(chr, range(32))})


@dataclass(frozen=True, slots=True)
class WriteProgram:
    """As `kernels.json.layout` has it."""

    code: npt.NDArray[np.int64]
    extra: npt.NDArray[np.int64]
    texts: npt.NDArray[np.uint8]


def leaf_kind(column: TableColumn) -> LeafName | None:
    """What a column's values are in JSON. None: it has others below it."""
    if column.kind == "string":
        return "json" if column.content == "json" else "string"
    return _LEAVES.get(column.kind)


_LEAVES: Final[Mapping[str, LeafName]] = {
    "long": "long",
    "double": "double",
    "boolean": "boolean",
    "date": "date",
    "timestamptz": "time",
}


def compile_writer(template: Template, roots: Sequence[ColumnSlot]) -> WriteProgram | None:
    """None: the template is not of such columns."""
    compiler = _Compiler(template.escapes)
    try:
        compiler.root(template, roots)
    except (KeyError, ValueError):
        return None
    return compiler.program()


def default_template(roots: Sequence[ColumnSlot], *, is_object: bool) -> Template:
    """For rows that no text was seen of: what an engine has added. Compact, and without what is null. `is_object`: the
    columns are those of an object's fields; otherwise the value is the first one."""
    return Template(_default_object(roots) if is_object else _default_node(roots[0]), Escapes())


def _default_object(slots: Sequence[ColumnSlot]) -> ObjectNode:
    members = (MemberNode(_key(source_of(slot.column)), _default_node(slot), is_left_out=True) for slot in slots)
    return ObjectNode(tuple(members), Spaces())


def schema_template(root: JsonType, roots: Sequence[ColumnSlot]) -> Template:
    """For rows that are to be values of this schema, whose columns they are: compact, its fields in its order; one that
    is null is left out, unless every value has it."""
    if root.kind == "object":
        return Template(_schema_object(root, roots), Escapes())
    [slot] = [each for each in roots if source_of(each.column) == ROOT]
    return Template(_schema_node(root, slot), Escapes())


def _schema_object(found: JsonType, slots: Sequence[ColumnSlot]) -> ObjectNode:
    by_name = {source_of(slot.column): slot for slot in slots}
    members = (
        MemberNode(_key(name), _schema_node(below, by_name[name]), is_left_out=name not in found.required)
        for name, below in zip(found.names, found.below, strict=True)
    )
    return ObjectNode(tuple(members), Spaces())


def _schema_node(found: JsonType, slot: ColumnSlot) -> Node:
    match leaf_kind(slot.column), slot.column.kind:
        case None, "struct":
            return _schema_object(found, slot.below)
        case None, "list":
            return ArrayNode(_schema_node(found.below[0], slot.below[0]), Spaces())
        case None, _:
            return MapNode(_schema_node(found.below[0], slot.below[1]), Spaces(), ":")
        case _:
            return _default_node(slot)


def _key(name: str) -> str:
    return msgspec.json.encode(name).decode() + ":"


def _default_node(slot: ColumnSlot) -> Node:
    match leaf_kind(slot.column), slot.column.kind:
        case None, "struct":
            return _default_object(slot.below)
        case None, "list":
            return ArrayNode(_default_node(slot.below[0]), Spaces())
        case None, _:
            return MapNode(_default_node(slot.below[1]), Spaces(), ":")
        case "double" as kind, _:
            return Leaf(kind, NUMBER_FORMS[1])
        case "time" as kind, _:
            return Leaf(kind, TimeForm())
        case kind, _:
            assert kind is not None
            return Leaf(kind)


class _Compiler:
    def __init__(self, escapes: Escapes) -> None:
        self._code: list[list[int]] = []
        self._extra: list[int] = []
        self._texts = bytearray()
        self._escapes = self._escape_style(escapes)
        self._forms: dict[NumberForm | TimeForm, int] = {}

    def program(self) -> WriteProgram:
        return WriteProgram(
            np.array(self._code, np.int64).reshape(-1, INSTRUCTION_WORDS),
            np.array(self._extra, np.int64),
            np.frombuffer(bytes(self._texts) + b"\0", np.uint8),
        )

    def root(self, template: Template, roots: Sequence[ColumnSlot]) -> None:
        self._emit(WriteOp.TEXT, 0, *self._text(template.before))
        if isinstance(template.root, ObjectNode):
            self._object(template.root, roots)
        else:
            [slot] = [each for each in roots if source_of(each.column) == ROOT]
            self._nullable(template.root, slot)
        self._emit(WriteOp.TEXT, 0, *self._text(template.after))
        self._emit(WriteOp.END)

    def _nullable(self, node: Node, slot: ColumnSlot) -> None:
        place = self._emit(WriteOp.NULL, slot.number)
        self._value(node, slot)
        self._code[place][2] = len(self._code)

    def _value(self, node: Node, slot: ColumnSlot) -> None:
        kind = slot.column.kind
        match node:
            case Leaf(name, form):
                if leaf_kind(slot.column) != name:
                    raise ValueError(name)
                self._emit(_OPS[name], slot.number, self._escapes if name == "string" else self._form(form))
            case ObjectNode() if kind == "struct":
                self._object(node, slot.below)
            case ArrayNode(items, spaces) if kind == "list":
                self._repeated(slot, spaces, items, None)
            case MapNode(values, spaces, colon) if kind == "map":
                self._repeated(slot, spaces, values, colon)
            case _:
                raise ValueError(kind)

    def _object(self, node: ObjectNode, slots: Sequence[ColumnSlot]) -> None:
        by_name = {source_of(slot.column): slot for slot in slots}
        self._emit(WriteOp.OPEN)
        for member in node.members:
            self._member(member, node.spaces, by_name.pop(member.name))
        self._emit(WriteOp.CLOSE, 0, *self._text(node.spaces.last), *self._text(node.spaces.empty))

    def _member(self, member: MemberNode, spaces: Spaces, slot: ColumnSlot) -> None:
        between = spaces.between if member.between is None else member.between
        first, other = self._text(spaces.first + member.key), self._text(between + member.key)
        place = self._emit(WriteOp.MEMBER, slot.number, int(member.is_left_out), *first, *other)
        self._value(member.node, slot)
        self._code[place][7] = len(self._code)

    def _repeated(self, slot: ColumnSlot, spaces: Spaces, node: Node, colon: str | None) -> None:
        is_map = int(colon is not None)
        begin = self._emit(WriteOp.LIST, slot.number, *self._text(spaces.first), *self._text(spaces.empty), 0, is_map)
        if colon is not None:
            self._emit(WriteOp.STRING, slot.below[0].number, self._escapes)
            self._emit(WriteOp.TEXT, 0, *self._text(colon))
        self._nullable(node, slot.below[-1])
        self._emit(WriteOp.NEXT, slot.number, *self._text(spaces.between), *self._text(spaces.last), begin + 1, is_map)
        self._code[begin][6] = len(self._code)

    def _emit(self, op: WriteOp, slot: int = 0, *operands: int) -> int:
        """Its place."""
        self._code.append([int(op), slot, *operands, *[0] * (INSTRUCTION_WORDS - 2 - len(operands))])
        return len(self._code) - 1

    def _text(self, text: str) -> tuple[int, int]:
        """Position and length."""
        data = text.encode()
        position = len(self._texts)
        self._texts += data
        return position, len(data)

    def _form(self, form: NumberForm | TimeForm | None) -> int:
        """Where its numbers are, in `extra`."""
        if form is None:
            return 0
        if form not in self._forms:
            if isinstance(form, NumberForm):
                numbers = _number_words(form)
            else:
                separator = ord(form.separator)
                numbers = [separator, form.fraction_style, form.offset_minutes, *self._text(form.zone)]
            self._forms[form] = len(self._extra)
            self._extra += numbers
        return self._forms[form]

    def _escape_style(self, escapes: Escapes) -> int:
        forms = bytearray(RAW_FORM for _ in range(128))
        for character in (*MUST_ESCAPE, *escapes.code):
            if ord(character) < len(forms):
                forms[ord(character)] = CODE_FORM
        for character in escapes.short:
            forms[ord(character)] = ord(SHORT[character])
        has_line_ends = any(each in escapes.code for each in LINE_ENDS)
        others = [form for place, form in enumerate(forms) if chr(place) not in MUST_ESCAPE and place != 127]
        is_plain = not any(others) and not has_line_ends
        place = len(self._extra)
        self._extra += [len(self._texts), is_plain, escapes.is_ascii, has_line_ends, escapes.is_upper]
        self._texts += forms
        return place


def _number_words(form: NumberForm) -> list[int]:
    return [
        form.lowest,
        form.highest,
        int(bool(form.whole)),
        ord(form.mark[0]),
        int(form.mark.endswith("+")),
        form.exponent_digits,
        int(bool(form.single)),
        form.decimals,
    ]
