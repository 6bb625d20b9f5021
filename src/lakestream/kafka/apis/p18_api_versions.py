"""ApiVersions, v0–v4.

Which APIs are served, in which versions; the answer is made from the registration lines. A version that is
not served is answered as v0 with UNSUPPORTED_VERSION and the ranges, so that any client can step down.
From v3 on, the answer tells the features of the cluster, and a client names its software; a name outside
[a-zA-Z0-9.-] is INVALID_REQUEST.
"""

import re
from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.kafka.apis.api import Context, Door, Reply, api
from lakestream.kafka.wire.writing import Fields

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


_NO_ZERO: Final = 3
FEATURES: Final = {"share.version": (0, 1), "transaction.version": (0, 2)}
"""By Kafka's names, with the lowest and the highest level. All are at the highest, always: clients ask whether there
are share groups, and whether a producer may leave AddPartitionsToTxn out and go on in another epoch after each
transaction."""


async def handle(context: Context, request: Any) -> Reply:
    named = context.version < 3 or (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    )
    return (
        _ranges(context.door, context.version) if named else {"error_code": ErrorCode.invalid_request, "api_keys": ()}
    )


def unsupported_version(door: Door) -> Fields:
    return {**_ranges(door), "error_code": ErrorCode.unsupported_version}


def _ranges(door: Door, version: int = 0) -> Fields:
    return {
        "api_keys": [
            {"api_key": key, "min_version": served.announced_from, "max_version": served.max_version}
            for key, served in sorted(door.apis.items())
        ],
        "supported_features": [
            {"name": name, "min_version": lowest, "max_version": highest}
            for name, (lowest, highest) in FEATURES.items()
            # Clients of v3 take a level 0 for damage.
            if lowest or version > _NO_ZERO
        ],
        "finalized_features_epoch": 0,
        "finalized_features": [
            {"name": name, "min_version_level": highest, "max_version_level": highest}
            for name, (_, highest) in FEATURES.items()
        ],
    }


API = api(18, handle, versions=(0, 4))
