"""The pace of flushes: by the bucket, unless somebody says otherwise."""

import pytest

from lakestream.stream import StreamSettings
from lakestream.stream.settings import Pace, pace_for


@pytest.mark.parametrize(
    ("url", "settings", "pace"),
    [
        ("file:///data/bucket", StreamSettings(), Pace(1, 20, 1, True)),
        ("s3://bucket", StreamSettings(), Pace(250, 250, 4, False)),
        ("s3://bucket", StreamSettings(flush_interval_ms=0), Pace(0, 0, 4, False)),
        ("file:///data/bucket", StreamSettings(flushes_in_flight=7), Pace(1, 20, 7, True)),
    ],
)
def test_pace(url: str, settings: StreamSettings, pace: Pace) -> None:
    assert pace_for(url, settings) == pace
