"""A client of the SQL door that knows nothing of us but its address."""

from dataclasses import dataclass
from typing import Any

import requests


@dataclass
class Refused(Exception):
    status: int
    code: str
    message: str


@dataclass
class Asker:
    door: str

    def post(self, path: str, body: Any, **headers: str) -> requests.Response:
        answer = requests.post(f"{self.door}{path}", json=body, headers=headers, timeout=120)
        if answer.status_code != 200:
            error = answer.json()["error"]
            raise Refused(answer.status_code, error["code"], error["message"])
        return answer

    def ask(self, query: str, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.post("/sql", {"query": query} | more).json()
        return found

    def rows(self, query: str, **more: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask(query, **more)["rows"]
        return found

    def value(self, query: str, **more: Any) -> Any:
        """Of an answer that is one value."""
        [row] = self.rows(query, **more)
        [value] = row.values()
        return value

    def replay(self, citation: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.post("/sql/replay", {"citation": citation}).json()
        return found

    def refusal(self, query: str, **more: Any) -> Refused:
        try:
            found = self.ask(query, **more)
        except Refused as refused:
            return refused
        raise AssertionError(f"{query} was answered: {str(found)[:300]}")
