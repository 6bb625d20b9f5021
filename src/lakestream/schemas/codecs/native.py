"""The kernels of values, as this process has them loaded."""

import ctypes
import threading
from pathlib import Path
from typing import Final

from lakestream.records.machine_code import KernelSet, MachineCode
from lakestream.records.native import RECORD_SOURCES

_LONG: Final = ctypes.c_int64
_PROTOTYPES: Final = {
    "decode_values": [_LONG] * 14,
    "compare_values": [_LONG] * 11,
    "encode_values": [_LONG] * 16,
    "check_texts": [_LONG] * 7,
    "read_values": [_LONG] * 16,
    "match_values": [_LONG] * 15,
    "write_values": [_LONG] * 17,
    "place_values": [_LONG] * 11,
    "decode_protobuf": [_LONG] * 14,
    "compare_protobuf": [_LONG] * 11,
    "encode_protobuf": [_LONG] * 16,
}
_FOLDER: Final = Path(__file__).parent
VALUE_KERNELS: Final = KernelSet(
    "value-kernels",
    "lakestream.schemas.codecs.kernels.entries",
    (
        *RECORD_SOURCES,
        _FOLDER / "layout.py",
        _FOLDER / "protobuf" / "layout.py",
        *sorted((_FOLDER / "kernels" / "protobuf").glob("*.py")),
        *sorted((_FOLDER / "kernels" / "json").glob("*.py")),
        *sorted((_FOLDER / "kernels").glob("*.py")),
    ),
)


class ValueKernels:
    """The entries as callables: see `kernels.entries`."""

    def __init__(self) -> None:
        self._code = MachineCode(VALUE_KERNELS, _PROTOTYPES)
        self.decode_values = self._code.entry("decode_values")
        self.compare_values = self._code.entry("compare_values")
        self.encode_values = self._code.entry("encode_values")
        self.check_texts = self._code.entry("check_texts")
        self.read_values = self._code.entry("read_values")
        self.match_values = self._code.entry("match_values")
        self.write_values = self._code.entry("write_values")
        self.place_values = self._code.entry("place_values")
        self.decode_protobuf = self._code.entry("decode_protobuf")
        self.compare_protobuf = self._code.entry("compare_protobuf")
        self.encode_protobuf = self._code.entry("encode_protobuf")


_lock: Final = threading.Lock()
_loaded: ValueKernels | None = None


def kernels() -> ValueKernels:
    """The process's kernels; the first call loads them, on a fresh machine after compiling them."""
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = ValueKernels()
        return _loaded


def warm_up() -> None:
    """Makes the kernels ready to run. Takes about a minute once on a fresh machine, milliseconds after that."""
    kernels()
