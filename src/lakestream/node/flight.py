"""The door for clients of Arrow Flight SQL, where a port is set for it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from lakestream.flight.server import FlightDoor
from lakestream.node.places import taken
from lakestream.query.looking import Tables
from lakestream.query.queries import Queries
from lakestream.runtime import format_host_port
from lakestream.settings import FlightSettings

_DRAIN_S: Final = 5.0
"""How long calls may go on when the door is stopped."""


@asynccontextmanager
async def open_flight(settings: FlightSettings, queries: Queries, tables: Tables) -> AsyncIterator[None]:
    """Nothing where no port is set."""
    if settings.port is None:
        yield
        return
    try:
        # gRPC would share a port that somebody else has.
        socket.create_server((settings.host, settings.port)).close()
    except OSError as error:
        raise taken(settings, error, "FLIGHT_PORT") from error
    location = f"grpc://{format_host_port(settings.host, settings.port)}"
    door = FlightDoor(location, queries, tables, asyncio.get_running_loop())
    try:
        yield
    finally:
        await asyncio.to_thread(door.end, _DRAIN_S)
