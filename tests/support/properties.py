"""How many examples a property test tries: all that it asks for in `make test-all`, half in `make test`, a fifth in
`make check`. No example has a deadline, for a loaded machine is slow."""

import os
from typing import Any

from hypothesis import settings

SHARE = float(os.environ.get("LAKESTREAM_EXAMPLES_SHARE", "1"))


def examples(count: int, **more: Any) -> settings:
    """Settings of a property test that tries `count` examples in a whole run."""
    return settings(max_examples=max(1, round(count * SHARE)), deadline=None, **more)
