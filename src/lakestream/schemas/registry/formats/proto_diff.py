"""What keeps a reader's Protobuf messages from reading what a writer's say.

Fields are known by their numbers. Types are grouped by how they are encoded: within a group a reader takes one for
another. Messages are compared by their names in the file, and where fields use them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

_GROUPS: Final = {
    kind: group
    for group, kinds in {
        "number": (Field.TYPE_INT32, Field.TYPE_INT64, Field.TYPE_UINT32, Field.TYPE_UINT64, Field.TYPE_BOOL),
        "enum": (Field.TYPE_ENUM,),
        "signed number": (Field.TYPE_SINT32, Field.TYPE_SINT64),
        "string or bytes": (Field.TYPE_STRING, Field.TYPE_BYTES),
        "32 bits": (Field.TYPE_FIXED32, Field.TYPE_SFIXED32),
        "64 bits": (Field.TYPE_FIXED64, Field.TYPE_SFIXED64),
        "float": (Field.TYPE_FLOAT,),
        "double": (Field.TYPE_DOUBLE,),
        "message": (Field.TYPE_MESSAGE, Field.TYPE_GROUP),
    }.items()
    for kind in kinds
}
_BUILTIN: Final = ("google/protobuf/", "google/type/", "confluent/")


def differences(writer: FileDescriptorSet, reader: FileDescriptorSet) -> list[str]:
    comparison = _Comparison(_Side.of(writer), _Side.of(reader))
    old, new = writer.file[-1], reader.file[-1]
    if old.package != new.package:
        comparison.found.append(f"#: the package was {old.package or 'none'} and is {new.package or 'none'}")
    for message in old.message_type:
        comparison.kept(message, {each.name: each for each in new.message_type}, "#")
    return list(dict.fromkeys(comparison.found))


@dataclass(frozen=True, slots=True)
class _Side:
    """Messages by their full names, with a leading dot; and which package each is of."""

    messages: dict[str, DescriptorProto]
    packages: dict[str, str]
    given: frozenset[str]
    """Those that come with Protobuf, and are the same for all."""
    own: frozenset[str]
    """The names of the file's own messages, wherever in it they are."""

    @staticmethod
    def of(files: FileDescriptorSet) -> "_Side":
        side = _Side({}, {}, frozenset(_builtin(files.file)), frozenset(_names(files.file[-1].message_type)))
        for file in files.file:
            _collect(side, file.message_type, f".{file.package}" if file.package else "", file.package)
        return side

    def local(self, name: str) -> str:
        """A message's name without its package: a package that is renamed says so once."""
        package = self.packages.get(name, "")
        return name.removeprefix(f".{package}.") if package else name.removeprefix(".")

    def map_entry(self, each: Field) -> DescriptorProto | None:
        message = self.messages.get(each.type_name)
        return message if message is not None and message.options.map_entry else None


def _builtin(files: Iterable[FileDescriptorProto]) -> Iterable[str]:
    for file in files:
        if file.name.startswith(_BUILTIN):
            yield from (f".{file.package}.{message.name}" for message in file.message_type)


def _names(messages: Iterable[DescriptorProto]) -> Iterable[str]:
    for message in messages:
        yield message.name
        yield from _names(message.nested_type)


def _collect(
    side: _Side,
    messages: Iterable[DescriptorProto],
    scope: str,
    package: str,
) -> None:
    for message in messages:
        name = f"{scope}.{message.name}"
        side.messages[name] = message
        side.packages[name] = package
        _collect(side, message.nested_type, name, package)


@dataclass(slots=True)
class _Comparison:
    old: _Side
    new: _Side
    found: list[str] = field(default_factory=list)
    _open: set[tuple[int, int]] = field(default_factory=set)

    def kept(self, old: DescriptorProto, new: Mapping[str, DescriptorProto], path: str) -> None:
        """The message is still there, and still reads."""
        if old.options.map_entry:
            return
        if old.name in new:
            self.messages(old, new[old.name], f"{path}/{old.name}")
        elif old.name not in self.new.own:
            self.found.append(f"{path}/{old.name}: the message was removed")

    def messages(self, old: DescriptorProto, new: DescriptorProto, path: str) -> None:
        pair = (id(old), id(new))
        if pair in self._open:
            return
        self._open.add(pair)
        self._oneofs(old, new, path)
        before, after = ({each.number: each for each in message.field} for message in (old, new))
        for number in sorted(before.keys() | after.keys()):
            where = f"{path}/{number}"
            if number not in after:
                self._removed(old, new, before[number], where)
            elif number not in before:
                if after[number].label == Field.LABEL_REQUIRED:
                    self.found.append(f"{where}: a required field was added")
            else:
                self._field(before[number], after[number], where)
        for nested in old.nested_type:
            self.kept(nested, {each.name: each for each in new.nested_type}, path)

    def _removed(self, old: DescriptorProto, new: DescriptorProto, gone: Field, path: str) -> None:
        if gone.label == Field.LABEL_REQUIRED:
            self.found.append(f"{path}: a required field was removed")
        oneof = _oneof_of(gone)
        if oneof is None:
            return
        present = {each.number for each in new.field}
        name = old.oneof_decl[oneof].name
        survives = any(each.number in present for each in old.field if _oneof_of(each) == oneof)
        if survives or name in _real_oneofs(new):
            self.found.append(f"{path}: the field was removed from oneof {name}")

    def _oneofs(self, old: DescriptorProto, new: DescriptorProto, path: str) -> None:
        """Fields that could be set together may not exclude each other now."""
        groups = {
            each.number: f"oneof {index}" if (index := _oneof_of(each)) is not None else f"field {each.number}"
            for each in old.field
        }
        for index, oneof in enumerate(new.oneof_decl):
            members = {groups[each.number] for each in new.field if _oneof_of(each) == index and each.number in groups}
            if len(members) > 1:
                self.found.append(f"{path}/{oneof.name}: fields that could be set together are in one oneof")

    def _field(self, old: Field, new: Field, path: str) -> None:
        old_entry, new_entry = self.old.map_entry(old), self.new.map_entry(new)
        if (old_entry is None) != (new_entry is None):
            self.found.append(f"{path}: a map became something else, or something else a map")
        elif old_entry is not None and new_entry is not None:
            for before, after in zip(old_entry.field, new_entry.field, strict=True):
                self._types(before, after, f"{path}/{before.name}")
        elif self._types(old, new, path):
            group = _group(old)
            repeated = [each.label == Field.LABEL_REPEATED for each in (old, new)]
            required = [each.label == Field.LABEL_REQUIRED for each in (old, new)]
            if group not in ("message", "string or bytes") and (
                repeated[0] != repeated[1] or required[0] != required[1]
            ):
                self.found.append(f"{path}: the label of a number has changed")
            elif required[1] and not required[0]:
                self.found.append(f"{path}: the field is required now")

    def _types(self, old: Field, new: Field, path: str) -> bool:
        before, after = _group(old), _group(new)
        if before != after:
            self.found.append(f"{path}: the type was {before} and is {after}")
            return False
        if before == "message":
            self._used(old.type_name, new.type_name, path)
        return True

    def _used(self, old: str, new: str, path: str) -> None:
        if self.old.local(old) != self.new.local(new):
            self.found.append(f"{path}: the type was {old[1:]} and is {new[1:]}")
        elif old not in self.old.given and old in self.old.messages and new in self.new.messages:
            self.messages(self.old.messages[old], self.new.messages[new], path)


def _group(each: Field) -> str:
    group = _GROUPS[each.type]
    return "number" if group == "enum" else group


def _oneof_of(each: Field) -> int | None:
    """None for the oneof that `optional` stands for in proto3, too."""
    return each.oneof_index if each.HasField("oneof_index") and not each.proto3_optional else None


def _real_oneofs(message: DescriptorProto) -> list[str]:
    used = {_oneof_of(each) for each in message.field}
    return [oneof.name for index, oneof in enumerate(message.oneof_decl) if index in used]
