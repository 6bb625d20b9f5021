"""Why bytes are no Protobuf value of a message."""

from typing import Final

from lakestream.schemas.codecs.protobuf.reading import MAX_LEVELS, Malformed, fields_in, values_of
from lakestream.schemas.protobuf import REQUIRED, ProtoMessage, ProtoSchema

_MAX_STEPS: Final = 100_000


def explain_protobuf(schema: ProtoSchema, message: ProtoMessage, data: bytes) -> str:
    """Of a value without framing. Empty: nothing is wrong with its bytes as far as this reads."""
    try:
        _read(schema, message, data, "", [_MAX_STEPS])
    except Malformed as wrong:
        return str(wrong)
    return ""


def _read(schema: ProtoSchema, message: ProtoMessage, data: bytes, path: str, steps: list[int]) -> None:
    known = {field.number: field for field in message.fields}
    seen: set[int] = set()
    place = _told(message, path)
    if path.count(".") >= MAX_LEVELS:
        raise Malformed(f"{place} nests more than {MAX_LEVELS} levels")
    try:
        for number, wire, value in fields_in(data):
            steps[0] -= 1
            if steps[0] < 0:
                raise Malformed(f"it is too long to say where it is not of its schema; up to {place} it is")
            field = known.get(number)
            if field is None:
                continue
            seen.add(number)
            inner = f"{path}.{field.name}" if path else field.name
            place = f"the field {inner}"
            for each in values_of(field, wire, value):
                if field.kind == "message":
                    _read(schema, schema.messages[field.type_name], each, inner, steps)
                elif field.kind == "string":
                    each.decode()
            place = _told(message, path)
    except UnicodeDecodeError as error:
        raise Malformed(f"{place} is a string that is no UTF-8 at its byte {error.start}") from None
    except Malformed as wrong:
        told = str(wrong)
        raise Malformed(told if told.startswith(("the ", "it ")) else f"{place} {told}") from None
    for field in message.fields:
        if field.label == REQUIRED and field.number not in seen:
            raise Malformed(f"{_told(message, path)} lacks its field {field.name}, which is required")


def _told(message: ProtoMessage, path: str) -> str:
    return f"the field {path}" if path else f"the message {message.name}"
