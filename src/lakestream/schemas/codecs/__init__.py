"""Values as columns, and columns as values: what fills and reads the columns of typed tables. `install` it in every
process that writes tables or reads them."""

from lakestream.schemas.codecs.installing import install
from lakestream.schemas.codecs.native import warm_up

__all__ = ["install", "warm_up"]
