"""What the REST door serves, as an OpenAPI 3.1 document, made of the endpoints themselves."""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from lakestream.http.rest.answers import JSON, ErrorAnswer
from lakestream.http.rest.endpoints import NUMBER, NUMBERS, TEXT, Endpoint, Query

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_TEXTS: Final = ("application/x-ndjson", "text/event-stream")
_LINES: Final = {"type": "string"}
_REF: Final = "#/components/schemas/{name}"
_SUMMARY: Final = (
    "Topics, records and consumer groups of this cluster: version 3 and 2 of the API that REST clients of Kafka know, "
    "and reading records from any offset with waiting and following. The same is served under /kafka."
)


def openapi(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    types = [each for endpoint in endpoints for each in (endpoint.body, endpoint.answer) if each is not None]
    schemas, components = msgspec.json.schema_components([*types, ErrorAnswer], ref_template=_REF)
    told = iter(schemas)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        body = None if endpoint.body is None else next(told)
        answer = None if endpoint.answer is None else next(told)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, body, answer)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lakestream REST",
            "version": "3",
            "description": _SUMMARY,
            "license": {"name": "Apache-2.0"},
        },
        "servers": [{"url": "/"}, {"url": "/kafka"}],
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(endpoint: Endpoint, body: Any, answer: Any) -> dict[str, Any]:
    error = {"description": "Refused", "content": {JSON: {"schema": {"$ref": _REF.format(name="ErrorAnswer")}}}}
    told: dict[str, Any] = {"description": "Done"}
    if answer is not None:
        told["content"] = {kind: {"schema": _LINES if kind in _TEXTS else answer} for kind in endpoint.answers}
    operation: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "parameters": [*map(_path_parameter, _PARAMETER.findall(endpoint.path))],
        "responses": {str(endpoint.status): told, "default": error},
    }
    operation["parameters"] += [_parameter(each, "query") for each in endpoint.query]
    operation["parameters"] += [_parameter(each, "header") for each in endpoint.headers]
    if body is not None:
        content = {kind: {"schema": body} for kind in endpoint.bodies}
        operation["requestBody"] = {"required": endpoint.is_body_required, "content": content}
    return operation


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": NUMBER if name in NUMBERS else TEXT}


def _parameter(query: Query, place: str) -> dict[str, Any]:
    return {
        "name": query.name,
        "in": place,
        "required": query.is_required,
        "schema": query.schema,
        "description": query.summary,
    }
