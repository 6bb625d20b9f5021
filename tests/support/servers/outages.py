"""A PostgreSQL server that is ended and started again under those who use it."""

import random
import signal
import threading
from contextlib import ExitStack
from types import TracebackType

from support.servers.postgres import PostgresServer

WAYS = (signal.SIGKILL, signal.SIGQUIT, signal.SIGINT)
"""A crash, an immediate shutdown, a fast one."""
REST_S = (2.0, 5.0)
DOWN_S = (0.1, 2.0)


class Outages:
    """While entered the server runs; between `begin` and `finish` it goes down now and then."""

    def __init__(self, server: PostgresServer, chance: random.Random) -> None:
        self.count = 0
        self._server = server
        self._chance = chance
        self._calm = threading.Event()
        self._thread = threading.Thread(target=self._rage, name="outages", daemon=True)
        self._up = ExitStack()

    def __enter__(self) -> "Outages":
        self._process = self._up.enter_context(self._server.up())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.finish()
        self._up.close()

    @property
    def url(self) -> str:
        return self._server.url

    def begin(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._calm.set()
        if self._thread.is_alive():
            self._thread.join()

    def _rage(self) -> None:
        while not self._calm.wait(self._chance.uniform(*REST_S)):
            self._server.end(self._process, self._chance.choice(WAYS))
            self._up.close()
            self._calm.wait(self._chance.uniform(*DOWN_S))
            self._process = self._up.enter_context(self._server.up())
            self.count += 1
