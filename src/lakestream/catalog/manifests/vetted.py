"""Avro files of other engines, whose names carry no checksum: vetted before they are parsed.

PyIceberg's compiled decoder does not look where its memory ends: over a damaged file it crashes, or takes what lies
behind for data. So such a file is read once in a process of its own, by a decoder that looks at every byte: where that
one finds all that it needs, the other does too. Blocking: called on the catalog's own threads only.
"""

import io
from typing import Final

from pyiceberg.avro import file as avro
from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

from lakestream.catalog.sealed import checksum_in
from lakestream.errors import CorruptObject
from lakestream.table.sandbox import SANDBOX, Attempt

_SYNC_BYTES: Final = 16
_INT_BYTES: Final = 10
_INT_END: Final = 1 << 64
_MORE: Final = 0x80


def vetted(files: FileIO, attempt: Attempt, size_bytes: int | None = None) -> FileIO:
    """Reads from `files`; those of other engines after the attempt. `size_bytes`: what a manifest list says of a
    manifest, which may be cut short where no decoder would notice."""
    return _VettedIO(files, attempt, size_bytes)


def careful(path: str, data: bytes) -> FileIO:
    """For attempts: that file alone. From now on all Avro in this process is read with care, and slowly."""
    avro.new_decoder = _CarefulDecoder  # type: ignore[attr-defined,assignment]
    return _OneFile(_Bytes(path, data))


class _ReadOnly(FileIO):
    def new_output(self, location: str) -> OutputFile:
        raise PermissionError(f"{location} is only read")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise PermissionError(f"{location} is only read")


class _VettedIO(_ReadOnly):
    def __init__(self, files: FileIO, attempt: Attempt, size_bytes: int | None) -> None:
        super().__init__()
        self._files = files
        self._attempt = attempt
        self._size_bytes = size_bytes

    def new_input(self, location: str) -> InputFile:
        plain = self._files.new_input(location)
        if checksum_in(location) is not None:
            return plain
        with plain.open() as stream:
            data = stream.read()
        if self._size_bytes not in (None, len(data)):
            raise CorruptObject(
                f"manifest {location} is damaged: it has {len(data)} bytes, and {self._size_bytes} where it is named"
            )
        SANDBOX.check(self._attempt, location, data)
        return _Bytes(location, data)


class _OneFile(_ReadOnly):
    def __init__(self, file: InputFile) -> None:
        super().__init__()
        self._file = file

    def new_input(self, location: str) -> InputFile:
        return self._file


class _Bytes(InputFile):
    def __init__(self, location: str, data: bytes) -> None:
        super().__init__(location)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._data)


class _CarefulDecoder(BinaryDecoder):
    """Takes nothing that is not there. Lengths and numbers that the compiled decoder would take for others are an error
    here. `EOFError` is the end of a file where one may end: behind a sync marker."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._may_end = False

    def tell(self) -> int:
        return self._position

    def read(self, n: int) -> bytes:
        self.skip(n)
        return self._data[self._position - n : self._position]

    def skip(self, n: int) -> None:
        if not 0 <= n <= len(self._data) - self._position:
            raise ValueError(f"{n} bytes are wanted at {self._position} of {len(self._data)}")
        self._position += n
        self._may_end = n == _SYNC_BYTES

    def read_int(self) -> int:
        if self._may_end and self._position == len(self._data):
            raise EOFError(f"the end, at {self._position}")
        self._may_end = False
        number, self._position = self._int_at(self._position)
        return number

    def _int_at(self, position: int) -> tuple[int, int]:
        """A number, and where it ends. An `IndexError` if the data end before it does."""
        byte = self._data[position]
        if byte < _MORE:
            return (byte >> 1) ^ -(byte & 1), position + 1
        number = byte & ~_MORE
        for place in range(1, _INT_BYTES):
            byte = self._data[position + place]
            number |= (byte & ~_MORE) << 7 * place
            if byte < _MORE and number < _INT_END:
                return (number >> 1) ^ -(number & 1), position + place + 1
        raise ValueError(f"the number at {position} has more than 64 bits")

    def read_bytes(self) -> bytes:
        return self.read(self.read_int())

    def skip_int(self) -> None:
        self.read_int()

    def skip_bytes(self) -> None:
        self.skip(self.read_int())
