"""What clients of the SQL door send, checked before anything is looked up."""

import asyncio
from typing import Final, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from lakestream.query.citations import Citation, from_token
from lakestream.query.messages import AnswerFormat, Value
from lakestream.query.questions import NOW, AsOf, Question

BODY_MOST: Final = 1 << 20
_BODY_S: Final = 30.0
"""A body that takes longer is given up."""
T = TypeVar("T")


class SentAsOf(AsOf, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tables: dict[str, AsOf] = msgspec.field(default_factory=dict)

    def of_all(self) -> AsOf:
        return AsOf(**{name: getattr(self, name) for name in AsOf.__struct_fields__})


class SentQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    query: str
    parameters: tuple[Value, ...] | dict[str, Value] = ()
    as_of: SentAsOf | None = None
    format: AnswerFormat | None = None
    max_rows: int | None = None
    timeout_ms: int | None = None

    def question(self, accepted: AnswerFormat) -> Question:
        """Raises `HTTPException`."""
        for name, value in (("max_rows", self.max_rows), ("timeout_ms", self.timeout_ms)):
            if value is not None and value < 1:
                raise HTTPException(400, f"{name} is a number from 1 on, not {value}")
        as_of = self.as_of
        return Question(
            self.query,
            self.parameters,
            NOW if as_of is None else as_of.of_all(),
            {} if as_of is None else as_of.tables,
            self.max_rows,
            self.timeout_ms,
            self.format or accepted,
        )


class SentCitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """As an answer has it, or as its header has it."""

    citation: Citation | str
    format: AnswerFormat | None = None

    def found(self) -> Citation:
        """Raises `CitationRefused`."""
        return from_token(self.citation) if isinstance(self.citation, str) else self.citation


async def body_of(request: Request, kind: type[T]) -> T:
    """Raises `HTTPException`."""
    data = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            async for part in request.stream():
                data += part
                if len(data) > BODY_MOST:
                    raise HTTPException(413, f"the request has more than {BODY_MOST} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the request did not arrive within {_BODY_S:.0f} s") from None
    try:
        return msgspec.json.decode(bytes(data), type=kind)
    except msgspec.ValidationError as error:
        raise HTTPException(400, f"the request is not as it should be: {error}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise HTTPException(400, f"the request is not JSON: {error}") from error


def accepted(request: Request) -> AnswerFormat:
    """The format that the client says it takes, where the body says none."""
    wanted = request.headers.get("Accept", "").lower()
    if "application/vnd.apache.arrow.stream" in wanted:
        return AnswerFormat.ARROW
    return AnswerFormat.NDJSON if "application/x-ndjson" in wanted else AnswerFormat.JSON
