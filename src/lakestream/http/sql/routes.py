"""`POST /sql` and `POST /sql/replay`. A client that goes away takes its query along."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lakestream.errors import RequestError
from lakestream.http.identity import principal_of
from lakestream.http.sql.errors import answered
from lakestream.http.sql.requests import SentCitation, SentQuery, accepted, body_of
from lakestream.query.citations import TOKEN_BYTES, as_token
from lakestream.query.held import HeldAnswers
from lakestream.query.messages import AnswerFormat
from lakestream.query.queries import Queries
from lakestream.query.questions import QueryAnswer

CITATION: Final = "Lakestream-Citation"
_TYPES: Final = {
    AnswerFormat.JSON: "application/json",
    AnswerFormat.NDJSON: "application/x-ndjson",
    AnswerFormat.ARROW: "application/vnd.apache.arrow.stream",
}
_PIECE_BYTES: Final = 256 * 1024
_READ_S: Final = 60.0
"""A client that takes nothing for so long is given up."""


class SqlRoutes:
    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._held = queries.held

    def routes(self) -> list[Route]:
        return [
            Route("/sql", answered(self.sql_query), methods=["POST"]),
            Route("/sql/replay", answered(self.sql_replay), methods=["POST"]),
        ]

    async def sql_query(self, request: Request) -> Response:
        sent = await body_of(request, SentQuery)
        question = sent.question(accepted(request))
        answer = await _while_there(request, self._queries.ask(principal_of(request), question))
        return self._told(answer, question.format)

    async def sql_replay(self, request: Request) -> Response:
        sent = await body_of(request, SentCitation)
        form = sent.format or accepted(request)
        answer = await _while_there(request, self._queries.replay(principal_of(request), sent.found(), form))
        return self._told(answer, form)

    def _told(self, answer: QueryAnswer, form: AnswerFormat) -> Response:
        """Raises `Overloaded`, and `RequestError` if there is no place for the citation."""
        body = _with_facts(answer) if form is AnswerFormat.JSON else answer.body
        token = as_token(answer.citation)
        if form is not AnswerFormat.JSON and len(token) > TOKEN_BYTES:
            raise RequestError("the citation of this answer is too long for a header: ask for the format json")
        headers = {CITATION: token} if len(token) <= TOKEN_BYTES else {}
        self._held.check(len(body))
        return _Told(body, self._held, media_type=_TYPES[form], headers=headers)


class _Told(Response):
    def __init__(self, body: bytes, held: HeldAnswers, *, media_type: str, headers: dict[str, str]) -> None:
        super().__init__(body, media_type=media_type, headers=headers)
        self._held = held

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        body = memoryview(self.body)
        with self._held.holding(len(body)), suppress(TimeoutError):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for start in range(0, max(len(body), 1), _PIECE_BYTES):
                piece = bytes(body[start : start + _PIECE_BYTES])
                more = start + _PIECE_BYTES < len(body)
                async with asyncio.timeout(_READ_S):
                    await send({"type": "http.response.body", "body": piece, "more_body": more})


def _with_facts(answer: QueryAnswer) -> bytes:
    return msgspec.json.encode({**answer.facts(), "rows": msgspec.Raw(answer.body)})


async def _while_there(request: Request, work: Coroutine[Any, Any, QueryAnswer]) -> QueryAnswer:
    """The work, which is cancelled when the client goes away."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            continue

    asked, watching = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait((asked, watching), return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            raise HTTPException(400, "the client is gone")
        return asked.result()
    finally:
        watching.cancel()
        if not asked.done():
            asked.cancel()
            await asyncio.wait((asked,))
