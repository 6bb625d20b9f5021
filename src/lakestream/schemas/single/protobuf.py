"""Protobuf values from and to Protobuf's JSON. Blocking where a schema is new: protoc is a process of its own."""

import base64
from functools import lru_cache
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message_factory import GetMessageClass

from lakestream.errors import InvalidRecords, InvalidSchema
from lakestream.schemas.descriptors import compiled_descriptors

_FIRST: Final = b"\0"
"""How a frame names the first message of a file."""
_DEPTH_MOST: Final = 100


class ProtobufValues:
    """Written is the first message of the schema; read is any."""

    def __init__(self, text: str, references: tuple[tuple[str, str], ...]) -> None:
        """Raises `InvalidSchema`."""
        files = FileDescriptorSet.FromString(base64.b64decode(compiled_descriptors(text, references)))
        self._pool = DescriptorPool()
        for file in files.file:
            self._pool.Add(file)
        self._file: Any = self._pool.FindFileByName(files.file[-1].name)
        names = [each.name for each in files.file[-1].message_type]
        if not names:
            raise InvalidSchema("the schema has no message")
        self._messages: list[Descriptor] = [self._file.message_types_by_name[name] for name in names]
        self.name = str(self._messages[0].full_name)

    def encoded(self, value: Any) -> bytes:
        """Behind the place of its message. Raises `InvalidRecords`."""
        try:
            message = GetMessageClass(self._messages[0])()
            json_format.ParseDict(value, message, max_recursion_depth=_DEPTH_MOST)
            return _FIRST + bytes(message.SerializeToString(deterministic=True))
        except (json_format.ParseError, EncodeError, ValueError, TypeError, AttributeError) as error:
            raise InvalidRecords(f"the value is not of the message {self.name}: {error}") from error

    def decoded(self, data: bytes) -> Any:
        """`data` begins with the place of the message. Raises `InvalidRecords`."""
        try:
            kind, rest = self._placed(data)
            message = GetMessageClass(kind).FromString(rest)
            return json_format.MessageToDict(message, preserving_proto_field_name=True)
        except (DecodeError, IndexError, json_format.Error, ValueError, TypeError) as error:
            raise InvalidRecords("the value is not of its Protobuf schema") from error

    def _placed(self, data: bytes) -> tuple[Descriptor, bytes]:
        count, at = _number(data, 0)
        path = []
        for _ in range(min(count, _DEPTH_MOST)):
            index, at = _number(data, at)
            path.append(index)
        kind = self._messages[path[0] if path else 0]
        for index in path[1:]:
            kind = kind.nested_types[index]
        return kind, data[at:]


@lru_cache(maxsize=64)
def protobuf_values(text: str, references: tuple[tuple[str, str], ...]) -> ProtobufValues:
    return ProtobufValues(text, references)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number and where the next one begins."""
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            found = (value >> 1) ^ -(value & 1)
            if found < 0:
                raise IndexError(found)
            return found, at
        shift += 7
        if shift > 35:
            raise IndexError("a number takes too many bytes")
