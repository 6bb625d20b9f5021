"""Buckets of histograms."""

from typing import Final

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""From a local disk to a store that is about to be given up."""
BYTES: Final = tuple(float(1024 * 4**power) for power in range(8))
"""1 KiB to 16 MiB."""
