"""Where a door listens, and what clients are told."""

import os

from lakestream.errors import RequestError
from lakestream.runtime import is_everywhere, parse_host_port
from lakestream.settings import BrokerSettings, FlightSettings, HttpSettings


def advertised(place: BrokerSettings | HttpSettings, variable: str) -> tuple[str, int]:
    """Host and port that clients are told. They keep to them, so an address that nobody can call is refused."""
    if place.advertised:
        try:
            return parse_host_port(place.advertised)
        except ValueError as error:
            raise RequestError(f"the advertised address cannot be used: {error}") from error
    if is_everywhere(place.host):
        raise RequestError(
            f"a door that listens on {place.host or 'every address'} must say which address clients are to use: "
            f"--advertised host:port, or {variable}=host:port for `up`"
        )
    return place.host, place.port


def taken(place: BrokerSettings | HttpSettings | FlightSettings, error: OSError, variable: str) -> RequestError:
    # The event loop puts a sentence of its own in the place of the system's words.
    why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
    return RequestError(
        f"port {place.port} on {place.host} cannot be used ({why}): "
        f"choose another with --port, or {variable}=… for `up`"
    )
