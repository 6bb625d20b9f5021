"""The kernels of records, as this process has them loaded (`machine_code`)."""

import ctypes
import threading
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from lakestream.records.machine_code import KernelSet, MachineCode

Buffer = bytes | bytearray | memoryview

_BYTES = ctypes.c_void_p
_LONGS = ctypes.c_void_p
_LONG = ctypes.c_int64

_PROTOTYPES: Final = {
    "crc32c": (ctypes.c_uint32, ctypes.c_uint32, _BYTES, _LONG, _LONG),
    "check_records": (_LONG, _BYTES, _LONG, _LONG, _LONG, _LONG, _LONG, _LONG, _LONG, _LONGS, _LONG, _LONGS),
    "stamp": (_LONG, _BYTES, _LONG, _LONG),
    "decode_run": (_LONG, _BYTES, _LONG, _LONG, _LONGS, _LONGS, _LONG),
    "decode_batch": (_LONG, _BYTES, _BYTES, _LONG, _LONG, _LONG, _LONGS, _LONGS, _LONG),
    "encode_rows": (_LONG, _LONGS, _LONGS, _LONG, _BYTES, _LONG, _LONG, _LONG, _LONGS, _LONG),
}
"""Result and arguments of every entry, as `kernels.entries.SIGNATURES` has them. Calls release the interpreter lock."""

_FOLDER: Final = Path(__file__).parent
RECORD_SOURCES: Final = (_FOLDER / "layout.py", *sorted((_FOLDER / "kernels").glob("*.py")))
RECORD_KERNELS: Final = KernelSet("kernels", "lakestream.records.kernels.entries", RECORD_SOURCES)


class Kernels:
    """The entries as callables. `crc32c(crc, address, start, end)` and so on: see `kernels.entries`."""

    def __init__(self) -> None:
        self._code = MachineCode(RECORD_KERNELS, _PROTOTYPES)
        self.crc32c = self._code.entry("crc32c")
        self.check_records = self._code.entry("check_records")
        self.stamp = self._code.entry("stamp")
        self.decode_run = self._code.entry("decode_run")
        self.decode_batch = self._code.entry("decode_batch")
        self.encode_rows = self._code.entry("encode_rows")


_lock: Final = threading.Lock()
_loaded: Kernels | None = None


def kernels() -> Kernels:
    """The process's kernels; the first call loads them, on a fresh machine after compiling them."""
    return _loaded or _load()


def _load() -> Kernels:
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = Kernels()
        return _loaded


def address(buffer: Buffer | npt.NDArray[np.generic]) -> bytes | int:
    """What a kernel takes as the buffer's address. The caller keeps the buffer alive during the call."""
    if isinstance(buffer, bytes):
        return buffer
    array = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)
    return int(array.__array_interface__["data"][0])


def warm_up() -> None:
    """Makes the kernels ready to run. Takes some 20 s once on a fresh machine, milliseconds after that."""
    kernels()
