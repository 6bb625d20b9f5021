"""Answers in the registry's own media type, with the fields that clients expect and none that are empty."""

from typing import Any, Final

import msgspec
from starlette.responses import Response

from lakestream.schemas.registry.model import Registered, Schema, SchemaType, SubjectConfig

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"


def answer(value: Any, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=MEDIA_TYPE)


def schema_fields(schema: Schema, text: str | None = None) -> dict[str, Any]:
    """Avro is what a schema is that does not say its type. `text`: in place of its own."""
    told: dict[str, Any] = {}
    if schema.type is not SchemaType.AVRO:
        told["schemaType"] = schema.type.value
    if schema.references:
        told["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references
        ]
    if schema.metadata is not None:
        told["metadata"] = schema.metadata
    if schema.rules is not None:
        told["ruleSet"] = schema.rules
    return told | {"schema": schema.text if text is None else text}


def registered_fields(found: Registered, text: str | None = None) -> dict[str, Any]:
    told = {"subject": str(found.subject), "version": found.version, "id": found.id, "guid": str(found.schema.guid())}
    return told | schema_fields(found.schema, text) | ({"deleted": True} if found.is_deleted else {})


def config_fields(config: SubjectConfig, level_name: str) -> dict[str, Any]:
    """Confluent's answer calls the level otherwise than its request does."""
    told: dict[str, Any] = {}
    if config.level is not None:
        told[level_name] = config.level.value
    if config.normalize is not None:
        told["normalize"] = config.normalize
    return told
