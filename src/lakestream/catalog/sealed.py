"""Metadata files whose names carry their checksum. Blocking: called on the catalog's own threads only.

Iceberg protects none of its metadata. The name of every manifest, manifest list and metadata file that we write ends in
CRC32C of its bytes, and every name stands in a file above it: the pointer, itself under a checksum, names the metadata,
that names the lists, those the manifests, those the data files, whose names carry the checksum of their footer. A bit
that flips anywhere below the pointer is found by whoever reads it, before anything is parsed. Files of
other engines have names of another form; `manifests.vetted` reads those.
"""

import io
import re
from collections.abc import Callable
from typing import Final

from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import Properties

from lakestream.catalog import cloud_files
from lakestream.catalog.cloud_files import CloudInput, CloudOutput, WholeFile, is_cloud
from lakestream.errors import CorruptObject
from lakestream.records import crc32c

_SEALED: Final = re.compile(r"\.([0-9a-f]{8})\.(?:avro|metadata\.json)", re.ASCII)
_SUFFIXES: Final = (".metadata.json", ".avro")


def checksum_in(location: str) -> int | None:
    """What the file's name says; None: it is another engine's."""
    name = location.rsplit("/", 1)[-1]
    found = _SEALED.search(name)
    return int(found.group(1), 16) if found is not None and found.end() == len(name) else None


def _sealed(location: str, checksum: int) -> str:
    suffix = next(suffix for suffix in _SUFFIXES if location.endswith(suffix))
    return f"{location.removesuffix(suffix)}.{checksum:08x}{suffix}"


def resealed(location: str, checksum: int) -> str:
    """The name of a file of other contents in the place of this one: with this checksum, whatever it had before."""
    if checksum_in(location) is not None:
        stem, _, suffix = location.rpartition("/")[2].partition(f".{checksum_in(location):08x}.")
        location = f"{location.rpartition('/')[0]}/{stem}.{suffix}"
    suffix = next((suffix for suffix in _SUFFIXES if location.endswith(suffix)), "")
    if suffix:
        return _sealed(location, checksum)
    stem, dot, ending = location.rpartition(".")
    return f"{stem}-moved{checksum:08x}{dot}{ending}"


class SealedIO(PyArrowFileIO):
    """Checks what it reads wherever the name has a checksum. What it writes under such a name waits in memory until
    `make`: nobody reads a file of a commit before all of them are there, so they are made side by side."""

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        self._waiting: dict[str, bytes] = {}

    def new_input(self, location: str) -> InputFile:  # type: ignore[override]
        checksum = checksum_in(location)
        plain = CloudInput(location) if is_cloud(location) else super().new_input(location)
        return plain if checksum is None else _CheckedInput(plain, checksum)

    def new_output(self, location: str) -> OutputFile:  # type: ignore[override]
        return CloudOutput(location) if is_cloud(location) else super().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        path = location if isinstance(location, str) else location.location
        if is_cloud(path):
            cloud_files.delete(path)
        else:
            super().delete(location)

    def new_sealed(self, location: str, named: Callable[[str], None]) -> "SealedOutput":
        """A file whose name will be `location` with its checksum; `named` is told of it before it waits."""
        return SealedOutput(self, location, named)

    def wait(self, location: str, data: bytes) -> None:
        self._waiting[location] = data

    def make(self, location: str) -> None:
        """Unless it is made."""
        data = self._waiting.pop(location, None)
        if data is not None:
            # Its name says what it holds: a look whether it is there would only cost a request.
            with self.new_output(location).create(overwrite=True) as stream:
                stream.write(data)

    def forget(self, location: str) -> None:
        """If it waits."""
        self._waiting.pop(location, None)


class _CheckedInput(InputFile):
    def __init__(self, plain: InputFile, checksum: int) -> None:
        super().__init__(plain.location)
        self._plain = plain
        self._checksum = checksum

    def __len__(self) -> int:
        return len(self._plain)

    def exists(self) -> bool:
        return self._plain.exists()

    def open(self, seekable: bool = True) -> InputStream:
        with self._plain.open(seekable) as stream:
            data = stream.read()
        if crc32c(data) != self._checksum:
            raise CorruptObject(
                f"{self.location} is damaged: its {len(data)} bytes do not have the checksum that is in its name; "
                "restore it from a backup"
            )
        return io.BytesIO(data)


class SealedOutput(OutputFile):
    """Once it is closed, `location` is its final name."""

    def __init__(self, files: SealedIO, location: str, named: Callable[[str], None]) -> None:
        super().__init__(location)
        self._files = files
        self._named = named
        self._size_bytes = 0

    def __len__(self) -> int:
        return self._size_bytes

    def exists(self) -> bool:
        """Names are never reused."""
        return False

    def to_input_file(self) -> InputFile:
        return self._files.new_input(self.location)

    def create(self, overwrite: bool = False) -> OutputStream:
        return WholeFile(self._store)

    def _store(self, data: bytes) -> None:
        self._location = _sealed(self._location, crc32c(data))
        self._size_bytes = len(data)
        self._named(self._location)
        self._files.wait(self._location, data)
