"""Texts of schemas, parsed off the event loop; what was parsed lately is remembered."""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from lakestream.errors import RegistryProblem, RegistryRefused
from lakestream.runtime import Runtime
from lakestream.schemas.registry.formats.avro import AvroFormat
from lakestream.schemas.registry.formats.format import Dependency, ParsedSchema, SchemaFormat, invalid
from lakestream.schemas.registry.formats.json_schema import JsonFormat
from lakestream.schemas.registry.formats.protobuf import ProtobufFormat
from lakestream.schemas.registry.model import Level, SchemaType

MOST_BYTES: Final = 1 << 20
_REMEMBERED_BYTES: Final = 16 << 20
_OVERHEAD_BYTES: Final = 4096
_FORMATS: Final[Mapping[SchemaType, SchemaFormat]] = MappingProxyType(
    {SchemaType.AVRO: AvroFormat(), SchemaType.JSON: JsonFormat(), SchemaType.PROTOBUF: ProtobufFormat()}
)


class Parser:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: OrderedDict[bytes, tuple[ParsedSchema, int]] = OrderedDict()
        self._bytes = 0

    async def parse(self, kind: SchemaType, text: str, dependencies: Sequence[Dependency] = ()) -> ParsedSchema:
        """Raises `RegistryRefused`."""
        size = len(text.encode(errors="replace"))
        if size > MOST_BYTES:
            raise RegistryRefused(
                RegistryProblem.TOO_LARGE,
                f"Schema is too large: it has {size} bytes, and {MOST_BYTES} are the most. Split it up by references",
            )
        if not text.strip():
            raise invalid("it is empty")
        key = hashlib.sha256(msgspec.msgpack.encode((kind, text, dependencies))).digest()
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known[0]
        parsed = await self._runtime.off_loop(lambda: _FORMATS[kind].parse(text, dependencies))
        if key not in self._known:
            weight = _OVERHEAD_BYTES + size + sum(len(each.text) for each in dependencies)
            self._known[key] = (parsed, weight)
            self._bytes += weight
        while self._bytes > _REMEMBERED_BYTES:
            self._bytes -= self._known.popitem(last=False)[1][1]
        return parsed

    async def compare(self, level: Level, new: ParsedSchema, earlier: ParsedSchema) -> list[str]:
        """What is not as the level wants it."""

        def work() -> list[str]:
            found = []
            if level.reads_earlier:
                found += new.incompatibilities(earlier)
            if level.read_by_earlier:
                found += [f"the earlier schema as reader: {each}" for each in earlier.incompatibilities(new)]
            return found

        return await self._runtime.off_loop(work)
