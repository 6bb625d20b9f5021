"""Requests in JSON to HTTP doors, which need not be ours: the answer, or one sentence."""

import json
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

JSON: Final = "application/json"


class DoorError(Exception):
    """One sentence: nobody answers (`status` 0), or the door refuses."""

    def __init__(self, sentence: str, status: int = 0) -> None:
        super().__init__(sentence)
        self.status = status


def ask(door: str, method: str, url: str, body: dict[str, Any] | None, *, timeout_s: float, content: str = JSON) -> Any:
    """`door` is what a sentence calls it: its kind and address."""
    data = None if body is None else json.dumps(body).encode()
    try:
        request = Request(url, data, {"Accept": content, "Content-Type": content}, method=method)
        with urlopen(request, timeout=timeout_s) as response:
            return json.loads(response.read())
    except HTTPError as error:
        with error:
            raise DoorError(f"the {door} refused: {_reason(error.read(), str(error))}", error.code) from error
    except (OSError, HTTPException, ValueError) as error:
        kind, _, address = door.partition(" at ")
        raise DoorError(f"no {kind} answers at {address}: {getattr(error, 'reason', error)}") from error


def _reason(body: bytes, otherwise: str) -> str:
    """A registry's message stands alone, a catalog's in its error."""
    try:
        answer = json.loads(body)
        return str(answer.get("error", answer)["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return otherwise
