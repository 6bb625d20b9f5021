"""Object stores behind one Protocol: whole immutable objects under names.

`open` makes a store from a URL: a local directory (durable puts), memory, or a cloud
bucket through obstore. All of them pass one contract suite.
"""

from lakestream.objects.factory import open
from lakestream.objects.local.store import LocalObjects
from lakestream.objects.memory import MemoryObjects
from lakestream.objects.store import Buffer, ObjectInfo, ObjectStore

__all__ = ["Buffer", "LocalObjects", "MemoryObjects", "ObjectInfo", "ObjectStore", "open"]
