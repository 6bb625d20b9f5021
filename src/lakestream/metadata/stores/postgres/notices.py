"""How processes on other machines learn that shards have changed.

NOTIFY inside a commit would serialise all commits of the database: so it comes after the commit, on a connection of its
own, for all shards that changed meanwhile together. A notice is a hint that may be lost with its sender. The truth
is polled: while somebody watches, a look at the server's snapshot tells every few seconds whether anything was
written since, and then all that is watched is read again.
"""

import asyncio
import json
import logging
from contextlib import suppress
from typing import Final

import asyncpg

from lakestream.errors import LakestreamError
from lakestream.metadata.stores.postgres.connecting import Server, asked, errors_translated
from lakestream.metadata.stores.watching import Watchers

log = logging.getLogger(__name__)

POLL_INTERVAL_S: Final = 2.0
GATHER_S: Final = 0.002
"""Changes of this long go into one notice."""
RECONNECT_S: Final = (0.1, 2.0)
_PAYLOAD_BYTES: Final = 7900
_NOTIFY: Final = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"


class Notices:
    """Belongs to one event loop. `watched` is to be told when somebody begins or ceases to wait."""

    def __init__(self, server: Server, watchers: Watchers) -> None:
        self._server = server
        self._channel = f"lakestream_{server.schema}"
        self._watchers = watchers
        self._changed: dict[str, None] = {}
        self._woken = asyncio.Event()
        self._is_watched = False
        self._own = 0
        """The server's process that speaks with us: what it sends is our own."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def tell(self, shard: str) -> None:
        self._changed[shard] = None
        self._woken.set()

    def watched(self, is_watched: bool) -> None:
        if is_watched and not self._is_watched:
            self._woken.set()
        self._is_watched = is_watched

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        pause_s = RECONNECT_S[0]
        while True:
            connection: asyncpg.Connection | None = None
            try:
                with errors_translated(self._server.place):
                    connection = await self._server.connect(durable=False)
                    self._own = connection.get_server_pid()
                    await connection.add_listener(self._channel, self._heard)
                    connection.add_termination_listener(lambda _: self._woken.set())
                    pause_s = RECONNECT_S[0]
                    await self._serve(connection)
            except LakestreamError as error:
                log.warning("no notices from other brokers for the moment: %s", error)
            finally:
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RECONNECT_S[1])

    async def _serve(self, connection: asyncpg.Connection) -> None:
        # What happened while nobody listened was not heard.
        self._watchers.something_changed()
        snapshot = ""
        while not connection.is_closed():
            self._woken.clear()
            if self._changed:
                changed, self._changed = self._changed, {}
                await asked(connection, connection.execute(_NOTIFY, self._channel, _payloads(changed)))
                await asyncio.sleep(GATHER_S)
                continue
            try:
                async with asyncio.timeout(POLL_INTERVAL_S if self._is_watched else None):
                    await self._woken.wait()
            except TimeoutError:
                # Equal: no transaction that wrote has ended since.
                seen = await asked(connection, connection.fetchval("SELECT pg_current_snapshot()::text"))
                if seen != snapshot:
                    snapshot = seen
                    self._watchers.something_changed()

    def _heard(self, connection: object, sender: int, channel: str, payload: object) -> None:
        if sender == self._own:
            return
        try:
            shards = [str(shard) for shard in json.loads(str(payload))]
        except (ValueError, TypeError):
            log.warning("a notice on %s that is none of ours was ignored", channel)
            return
        self._watchers.shards_changed(shards)


def _payloads(shards: dict[str, None]) -> list[str]:
    """As few as PostgreSQL's limit on a notice allows. ASCII, whatever the names hold."""
    payloads: list[str] = []
    names: list[str] = []
    size = 2
    for name in map(json.dumps, shards):
        if names and size + len(name) + 1 > _PAYLOAD_BYTES:
            payloads.append(f"[{','.join(names)}]")
            names, size = [], 2
        names.append(name)
        size += len(name) + 1
    return [*payloads, f"[{','.join(names)}]"]
