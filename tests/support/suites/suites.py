"""Where the tests of other people's clients are, as `make suites` builds them."""

import os
from pathlib import Path

_CACHE = Path(__file__).parents[3] / ".cache" / "suites"


def suite(name: str) -> Path:
    """In LAKESTREAM_SUITES, else in the repository's cache."""
    return Path(os.environ.get("LAKESTREAM_SUITES", _CACHE)) / name
