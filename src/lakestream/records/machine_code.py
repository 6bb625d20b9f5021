"""Kernels as machine code: loaded from the cache, built there once per machine.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm

_BUILD: Final = "lakestream.records.kernels.build"


@dataclass(frozen=True, slots=True)
class KernelSet:
    """Kernels that are one object. `entries` is the module that compiles them, `sources` all files whose change makes
    another object of them; the object lies beside the last one's folder, or in the user's cache."""

    name: str
    entries: str
    sources: tuple[Path, ...]
    build: str = _BUILD


def object_name(kernels: KernelSet) -> str:
    digest = hashlib.sha256()
    for source in kernels.sources:
        digest.update(source.read_bytes())
    machine = (llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    versions = (sys.version, importlib.metadata.version("numba"), importlib.metadata.version("llvmlite"))
    digest.update("\0".join((*machine, *versions)).encode())
    return f"{kernels.name}-{digest.hexdigest()[:32]}.o"


def load_object(kernels: KernelSet) -> bytes:
    """The machine code, from the first cache directory that has it, else built into the first that can take it."""
    name = object_name(kernels)
    directories = _directories(kernels)
    for directory in directories:
        path = directory / name
        if path.is_file():
            return path.read_bytes()
    for directory in directories:
        if _is_writable(directory):
            return build_object(kernels, directory / name)
    with tempfile.TemporaryDirectory() as scratch:
        return build_object(kernels, Path(scratch) / name)


def build_object(kernels: KernelSet, path: Path) -> bytes:
    command = [sys.executable, "-m", kernels.build, kernels.entries, str(path)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise RuntimeError(f"the {kernels.name} do not compile:\n{finished.stderr}")
    return path.read_bytes()


def _directories(kernels: KernelSet) -> list[Path]:
    named = os.environ.get("LAKESTREAM_CACHE")
    if named:
        return [Path(named)]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [kernels.sources[-1].parent / "__pycache__", home / "lakestream"]


def _is_writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK | os.X_OK)


class MachineCode:
    """The loaded object. It owns the code: it must live as long as the callables."""

    def __init__(self, kernels: KernelSet, prototypes: Mapping[str, Sequence[Any]]) -> None:
        """`prototypes`: result and arguments of every entry. Calls release the interpreter lock."""
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
            cpu=llvm.get_host_cpu_name(),
            features=llvm.get_host_cpu_features().flatten(),
            codemodel="jitdefault",
            jit=True,
        )
        self._prototypes = prototypes
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(load_object(kernels)))
        self._engine.finalize_object()

    def entry(self, name: str) -> Callable[..., int]:
        address = self._engine.get_function_address(name)
        if not address:
            raise RuntimeError(f"the kernels' object has no entry {name}")
        return ctypes.CFUNCTYPE(*self._prototypes[name])(address)
