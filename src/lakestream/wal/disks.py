"""A disk store: one of several low-latency stores that hold copies of WAL objects, and its label.

The label is an object that names the store and the moment since when it is whole: since then it has everything that it
was said to have. The metadata store says which label is the right one. A store without it was emptied, replaced or is
not mounted: what is absent there may exist, and nothing that is written there counts, until it was copied again and the
metadata store was told its new label (`frontier.copying.restoring`).
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from lakestream.errors import ObjectMissing, Unavailable
from lakestream.objects import ObjectStore

LABELS: Final = "lakestream/disk/"
ANSWER_S: Final = 5.0
"""A disk store that takes longer to answer counts as unreachable. Another has a copy."""


def label_key(cluster: str) -> str:
    return f"{LABELS}{cluster}.label"


def label_of(name: str, unique: str) -> str:
    """What the label says of a store that is whole since `unique` was drawn."""
    return f"{name} {unique}"


@dataclass(slots=True, eq=False)
class DiskStore:
    """`label`: the right one; empty: the store was never used. `usable`: whole and readable from every broker, as far
    as this process has looked; only brokers look. `trouble`: why not."""

    name: str
    objects: ObjectStore
    cluster: str
    label: str = ""
    usable: bool = False
    trouble: str = "it was not looked at yet"

    async def read_label(self) -> str:
        """Empty: there is none. Raises `Unavailable`."""
        try:
            async with asyncio.timeout(ANSWER_S):
                return (await self.objects.get(label_key(self.cluster))).decode(errors="replace")
        except ObjectMissing:
            return ""
        except TimeoutError:
            raise Unavailable(f"{self.objects.url} does not answer") from None

    async def write_label(self, label: str) -> None:
        await self.objects.put(label_key(self.cluster), [label.encode()], overwrite=True)

    async def is_whole(self) -> bool:
        """False: it is not, or does not answer."""
        try:
            return bool(self.label) and await self.read_label() == self.label
        except Unavailable:
            return False
