"""The kernels as machine code: loaded from the cache, built there once per machine.

Importing numba and its first kernel costs a process about two CPU seconds; loading the object that a child process
built with it costs milliseconds. The object's name is a digest of the kernels' sources, the compiler's version and the
processor, so a stale one is never loaded. `LAKESTREAM_CACHE` overrides the directory.
"""

import ctypes
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt

Buffer = bytes | bytearray | memoryview

_BYTES = ctypes.c_void_p
_LONGS = ctypes.c_void_p
_LONG = ctypes.c_int64

_PROTOTYPES: Final = {
    "crc32c": (ctypes.c_uint32, ctypes.c_uint32, _BYTES, _LONG, _LONG),
    "check_records": (_LONG, _BYTES, _LONG, _LONG, _LONG, _LONG, _LONG, _LONG, _LONG, _LONGS),
    "stamp": (_LONG, _BYTES, _LONG, _LONG),
    "decode_run": (_LONG, _BYTES, _LONG, _LONG, _LONGS, _LONGS, _LONG),
    "decode_batch": (_LONG, _BYTES, _BYTES, _LONG, _LONG, _LONG, _LONGS, _LONGS, _LONG),
    "encode_rows": (_LONG, _LONGS, _LONGS, _LONG, _BYTES, _LONG, _LONG, _LONG, _LONGS, _LONG),
}
"""Result and arguments of every entry, as `kernels.entries.SIGNATURES` has them. Calls release the interpreter lock."""

_SOURCES: Final = Path(__file__).parent
_BUILD: Final = "lakestream.records.kernels.build"


def _object_name() -> str:
    digest = hashlib.sha256()
    for source in (_SOURCES / "layout.py", *sorted((_SOURCES / "kernels").glob("*.py"))):
        digest.update(source.read_bytes())
    machine = (llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    versions = (sys.version, importlib.metadata.version("numba"), importlib.metadata.version("llvmlite"))
    digest.update("\0".join((*machine, *versions)).encode())
    return f"kernels-{digest.hexdigest()[:32]}.o"


def _directories() -> list[Path]:
    named = os.environ.get("LAKESTREAM_CACHE")
    if named:
        return [Path(named)]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [_SOURCES / "kernels" / "__pycache__", home / "lakestream"]


def _is_writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK | os.X_OK)


def _build(path: Path) -> bytes:
    finished = subprocess.run([sys.executable, "-m", _BUILD, str(path)], capture_output=True, text=True, check=False)
    if finished.returncode:
        raise RuntimeError(f"the record kernels do not compile:\n{finished.stderr}")
    return path.read_bytes()


def _object() -> bytes:
    """The machine code, from the first cache directory that has it, else built into the first that can take it."""
    name = _object_name()
    directories = _directories()
    for directory in directories:
        path = directory / name
        if path.is_file():
            return path.read_bytes()
    for directory in directories:
        if _is_writable(directory):
            return _build(directory / name)
    with tempfile.TemporaryDirectory() as scratch:
        return _build(Path(scratch) / name)


class Kernels:
    """The entries as callables. `crc32c(crc, address, start, end)` and so on: see `kernels.entries`."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
            cpu=llvm.get_host_cpu_name(),
            features=llvm.get_host_cpu_features().flatten(),
            codemodel="jitdefault",
            jit=True,
        )
        # The engine owns the code: it must live as long as the callables.
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(_object()))
        self._engine.finalize_object()
        self.crc32c = self._entry("crc32c")
        self.check_records = self._entry("check_records")
        self.stamp = self._entry("stamp")
        self.decode_run = self._entry("decode_run")
        self.decode_batch = self._entry("decode_batch")
        self.encode_rows = self._entry("encode_rows")

    def _entry(self, name: str) -> Callable[..., int]:
        address = self._engine.get_function_address(name)
        if not address:
            raise RuntimeError(f"the kernels' object has no entry {name}")
        return ctypes.CFUNCTYPE(*_PROTOTYPES[name])(address)


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
