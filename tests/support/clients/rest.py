"""A client of the REST door that knows its cluster."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

JSON = {"Content-Type": "application/json"}


class RestClient:
    """`http` for what is not of this cluster."""

    def __init__(self, door: str, prefix: str = "/kafka") -> None:
        self.door = door
        self.http = httpx.Client(base_url=door, timeout=60)
        [cluster] = self.http.get(f"{prefix}/v3/clusters").json()["data"]
        self.cluster_id: str = cluster["cluster_id"]
        self.base = f"{prefix}/v3/clusters/{self.cluster_id}"

    def call(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = self.http.request(method, self.base + path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        settings = [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]
        self.call("POST", "/topics", {"topic_name": topic, "partitions_count": partitions, "configs": settings}, 201)

    def produce(self, topic: str, *records: Any) -> list[dict[str, Any]]:
        """The reports."""
        body = "\n".join(map(json.dumps, records))
        answer = self.http.post(f"{self.base}/topics/{topic}/records", content=body, headers=JSON)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    def records(self, topic: str, query: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("GET", f"/topics/{topic}/records?{query}")["data"]
        return found

    def refused(self, method: str, path: str, body: Any = None) -> tuple[int, int]:
        """Status and code."""
        answer = self.http.request(method, self.base + path, json=body)
        return answer.status_code, answer.json()["error_code"]


@contextmanager
def rest_client(door: str) -> Iterator[RestClient]:
    client = RestClient(door)
    try:
        yield client
    finally:
        client.http.close()


def text(data: str, kind: str = "STRING") -> dict[str, str]:
    return {"type": kind, "data": data}
