"""A schema's text in the form that a client asks for with `format=`."""

from typing import Final

from starlette.requests import Request

from lakestream.schemas.registry.formats.protobuf import serialized
from lakestream.schemas.registry.model import Schema, SchemaType
from lakestream.schemas.registry.registry import SchemaRegistry

_SERIALIZED: Final = "serialized"


async def text_as_asked(request: Request, registry: SchemaRegistry, context: str, schema: Schema) -> str:
    """Forms that a schema does not have are its text, as Confluent's registry answers them."""
    if request.query_params.get("format") != _SERIALIZED or schema.type is not SchemaType.PROTOBUF:
        return schema.text
    return serialized(await registry.parsed(context, schema))
