"""Where a client is, as far as it says so.

Kafka's metadata request names no zone, so vendors of zone-aware brokers read it from the client id: `app,zone_id=a`.
Their words are understood too, so that a client's configuration may stay.
"""

import re
from functools import lru_cache
from typing import Final

_WORDS: Final = "lakestream_zone|zone_id|diskless_az|inkless_az|ws_az|warpstream_az|automq_az"
_HINT: Final = re.compile(rf"(?:^|[\s,;&])(?:{_WORDS})=([^\s,;&=]+)")


@lru_cache(maxsize=4096)
def zone_of(client_id: str) -> str | None:
    """The zone that a client id names; None: it names none."""
    found = _HINT.search(client_id)
    return None if found is None else found[1]
