"""Apache Arrow's JDBC driver for Flight SQL."""

import os
from pathlib import Path

_CACHE = Path(__file__).parents[3] / ".cache" / "flight"


def jdbc_driver() -> str | None:
    """From the folder LAKESTREAM_FLIGHT_JARS, else from the repository's cache."""
    folder = Path(os.environ.get("LAKESTREAM_FLIGHT_JARS", _CACHE))
    return next(map(str, sorted(folder.glob("flight-sql-jdbc-driver-*.jar"))), None)
