"""An S3 endpoint on loopback that takes its time: just enough of the protocol for objects to be put and read."""

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.servers import HOST, free_port

_EMPTY = "<ListBucketResult><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"


class SlowStore:
    """`delay_s` of every PUT, give or take `jitter_s`, may be changed while it runs. Bodies are counted and thrown
    away."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.jitter_s = 0.0
        self.put_count = 0
        self.put_bytes = 0

    async def put(self, request: Request) -> Response:
        async for chunk in request.stream():
            self.put_bytes += len(chunk)
        await asyncio.sleep(self.delay_s + random.uniform(-self.jitter_s, self.jitter_s))
        self.put_count += 1
        return Response(headers={"ETag": f'"{self.put_count}"'})

    async def missing(self, request: Request) -> Response:
        """Whatever is asked for: it is a bucket without objects."""
        return (
            Response(_EMPTY, media_type="application/xml")
            if "list-type" in request.query_params
            else Response(status_code=404)
        )


@contextmanager
def slow_store() -> Iterator[tuple[SlowStore, dict[str, str]]]:
    """The store, and the environment that points a broker's bucket at it."""
    store = SlowStore()
    path = "/{key:path}"
    app = Starlette(
        routes=[Route(path, store.put, methods=["PUT"]), Route(path, store.missing, methods=["GET", "DELETE"])]
    )
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, host=HOST, port=port, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield (
            store,
            {
                "LAKESTREAM_BUCKET_URL": "s3://slow",
                "AWS_ENDPOINT_URL": f"http://{HOST}:{port}",
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "none",
                "AWS_SECRET_ACCESS_KEY": "none",
            },
        )
    finally:
        server.should_exit = True
        thread.join(10)
