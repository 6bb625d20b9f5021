"""The metadata of one table or view, rewritten for another address of its bucket.

Iceberg names files by full addresses: a metadata file its manifest lists, those the manifests, those the data files and
delete files, and those of position deletes again data files. Data files name nothing and stay. All else is written
anew, beside what is there, under names that carry the checksums of the new contents: writing it again after a crash
makes the same files. Files are read and written by their keys in the bucket that was moved, never by an address, so
nothing elsewhere can be touched.
"""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from lakestream.catalog.manifests.avro_values import Choice, rewrite
from lakestream.catalog.sealed import checksum_in, resealed
from lakestream.errors import Conflict, CorruptObject, ObjectMissing, StorageError
from lakestream.objects import ObjectStore
from lakestream.records import crc32c
from lakestream.table.rewriting.moved import moved_position_deletes, moved_vectors

_POSITION_DELETES: Final = 1
_REMOVED: Final = 2
"""The status of a manifest's entry whose file has left the table and may be gone."""
_PATH_COLUMN: Final = 2147483546
"""Of a file of position deletes: its bounds are addresses."""
_NOT_ADDRESSES: Final = frozenset({"schemas", "representations"})
"""Parts of metadata in which text means what users say."""
_FORMS: Final = {"s3": ("s3", "s3a", "s3n"), "gs": ("gs",), "az": ("az", "abfs", "abfss")}


class Addresses:
    """From the old address of a bucket to the new one."""

    def __init__(self, old: str, new: str) -> None:
        self.old = old.rstrip("/")
        self.new = new.rstrip("/")
        scheme, _, rest = self.old.partition("://")
        if scheme == "file":
            self._forms: tuple[str, ...] = (f"file://{rest}", f"file:{rest}", rest)
        else:
            self._forms = tuple(f"{each}://{rest}" for each in _FORMS.get(scheme, (scheme,)))

    def moved(self, address: str) -> str:
        """What is not in the old bucket stays as it is."""
        for form in self._forms:
            if address == form or address.startswith(f"{form}/"):
                return self.new + address[len(form) :]
        return address

    def key(self, address: str) -> str | None:
        """Of what was in the old bucket; None: it was not."""
        moved = self.moved(address)
        return None if moved == address else moved.removeprefix(f"{self.new}/")


@dataclass(slots=True)
class Rehoming:
    """`written` and `replaced`: keys, of all that were rewritten so far. `outside`: addresses that were never in the
    old bucket and are left as they are."""

    objects: ObjectStore
    addresses: Addresses
    written: set[str] = field(default_factory=set)
    replaced: set[str] = field(default_factory=set)
    outside: set[str] = field(default_factory=set)
    _done: dict[str, tuple[str, int]] = field(default_factory=dict)

    async def table(self, location: str) -> str:
        """Where the metadata is now."""
        tree = await self._tree(location)
        for logged in tree.get("metadata-log") or ():
            # Earlier metadata is of no use to anybody here: snapshots are in the present one.
            self._replace(logged["metadata-file"])
        lists = {}
        for snapshot in tree.get("snapshots") or ():
            if "manifest-list" in snapshot:
                lists[snapshot["snapshot-id"]] = (await self._list(snapshot["manifest-list"]))[0]
        tree = self._moved_tree(tree)
        for snapshot in tree.get("snapshots") or ():
            if "manifest-list" in snapshot:
                snapshot["manifest-list"] = lists[snapshot["snapshot-id"]]
            elif "manifests" in snapshot:
                snapshot["manifests"] = [(await self._manifest(each))[0] for each in snapshot["manifests"]]
        if "metadata-log" in tree:
            tree["metadata-log"] = []
        return await self._put_tree(location, tree)

    async def view(self, location: str) -> str:
        return await self._put_tree(location, self._moved_tree(await self._tree(location)))

    async def _tree(self, location: str) -> dict[str, Any]:
        data = await self._get(location)
        try:
            found = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        except (ValueError, OSError) as error:
            raise CorruptObject(f"table metadata {location} does not parse: {error}") from error
        if not isinstance(found, dict):
            raise CorruptObject(f"table metadata {location} does not parse")
        return found

    async def _put_tree(self, location: str, tree: dict[str, Any]) -> str:
        address = self.addresses.moved(location).replace(".gz.metadata.json", ".metadata.json")
        self._replace(location)
        return await self._put(address, json.dumps(tree, separators=(",", ":")).encode())

    def _moved_tree(self, value: Any) -> Any:
        match value:
            case str():
                return self.addresses.moved(value)
            case list():
                return [self._moved_tree(each) for each in value]
            case dict():
                return {
                    name: each if name in _NOT_ADDRESSES else self._moved_tree(each) for name, each in value.items()
                }
        return value

    async def _list(self, location: str) -> tuple[str, int]:
        return await self._once(location, self._move_list)

    async def _manifest(self, location: str) -> tuple[str, int]:
        return await self._once(location, self._move_manifest)

    async def _once(self, location: str, work: Callable[[str], Any]) -> tuple[str, int]:
        """Lists share manifests, and manifests share files of deletes."""
        if location not in self._done:
            if self.addresses.key(location) is None:
                self.outside.add(location)
                self._done[location] = location, -1
            else:
                self._done[location] = await work(location)
        return self._done[location]

    async def _move_list(self, location: str) -> tuple[str, int]:
        data = await self._get(location)
        paths: list[str] = []
        rewrite(data, location, lambda record: paths.append(record["manifest_path"]))
        moved = {path: await self._manifest(path) for path in paths}

        def change(record: dict[str, Any]) -> None:
            address, size_bytes = moved[record["manifest_path"]]
            record["manifest_path"] = address
            if size_bytes >= 0:
                record["manifest_length"] = size_bytes

        return await self._put_new(location, rewrite(data, location, change))

    async def _move_manifest(self, location: str) -> tuple[str, int]:
        data = await self._get(location)
        deletes: list[tuple[str, str]] = []

        def look(record: dict[str, Any]) -> None:
            file = record["data_file"]
            if _plain(file.get("content")) == _POSITION_DELETES and record["status"] != _REMOVED:
                deletes.append((file["file_path"], file["file_format"]))

        rewrite(data, location, look)
        moved = {path: await self._deletes(path, form) for path, form in deletes}

        def change(record: dict[str, Any]) -> None:
            file = record["data_file"]
            path = file["file_path"]
            file["file_path"], size_bytes = moved.get(path, (self.addresses.moved(path), -1))
            if file["file_path"] == path:
                self.outside.add(path)
            if size_bytes >= 0:
                file["file_size_in_bytes"] = size_bytes
            named = file.get("referenced_data_file")
            if isinstance(named, Choice) and isinstance(named.value, str):
                named.value = self.addresses.moved(named.value)
            if _plain(file.get("content")) == _POSITION_DELETES:
                for bounds in ("lower_bounds", "upper_bounds"):
                    self._move_bounds(file.get(bounds))

        return await self._put_new(location, rewrite(data, location, change))

    def _move_bounds(self, bounds: Any) -> None:
        """One that is cut off is taken out: a missing bound means that anything may match."""
        if isinstance(bounds, Choice):
            bounds = bounds.value
        for entry in list(bounds or ()):
            if entry["key"] == _PATH_COLUMN:
                text = entry["value"].decode(errors="replace")
                entry["value"] = self.addresses.moved(text).encode()
                if self.addresses.moved(text) == text:
                    bounds.remove(entry)

    async def _deletes(self, location: str, form: str) -> tuple[str, int]:
        async def move(location: str) -> tuple[str, int]:
            data = await self._get(location)
            match form.upper():
                case "PARQUET":
                    return await self._put_new(location, moved_position_deletes(location, data, self.addresses.moved))
                case "PUFFIN":
                    return await self._put_new(location, moved_vectors(location, data, self.addresses.moved))
            raise StorageError(
                f"{location} has deleted rows in {form}, which cannot be moved: let the engine that wrote it rewrite"
                " its position deletes at the old address, and copy again"
            )

        return await self._once(location, move)

    async def _put_new(self, location: str, data: bytes) -> tuple[str, int]:
        self._replace(location)
        return await self._put(self.addresses.moved(location), data), len(data)

    async def _put(self, address: str, data: bytes) -> str:
        address = resealed(address, crc32c(data))
        key = address.removeprefix(f"{self.addresses.new}/")
        try:
            await self.objects.put(key, [data])
        except Conflict:
            # An earlier run, which came no further. The name says what is in it, and so does a reader who checks.
            await self.objects.put(key, [data], overwrite=True)
        self.written.add(key)
        return address

    async def _get(self, location: str) -> bytes:
        key = self.addresses.key(location)
        if key is None:
            raise StorageError(f"{location} is not in {self.addresses.old}")
        try:
            data = await self.objects.get(key)
        except ObjectMissing as error:
            raise StorageError(
                f"{self.addresses.new}/{key} is missing: this copy is not whole, perhaps it was made while lakestream"
                " ran. Copy it again from a cluster that is stopped"
            ) from error
        checksum = checksum_in(location)
        if checksum is not None and crc32c(data) != checksum:
            raise CorruptObject(f"{self.addresses.new}/{key} is damaged: its checksum is not that in its name")
        return data

    def _replace(self, location: str) -> None:
        key = self.addresses.key(location)
        if key is not None:
            self.replaced.add(key)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Choice) else value
