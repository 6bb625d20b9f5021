"""The accelerated code is the code that runs, and it is the right one."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import google_crc32c
import llvmlite.binding as llvm
import numpy as np
import pytest
from numba import cfunc, types

from lakestream.records import machine_code, native
from lakestream.records.kernels import checksum, entries

SIZES = [*range(34), 383, 384, 391, 3071, 3072, 3080, 10_000]


def test_every_entry_has_its_prototype() -> None:
    signatures = {function.__name__: signature for function, signature in entries.SIGNATURES.items()}
    assert set(signatures) == set(native._PROTOTYPES)
    for name, (_, *arguments) in native._PROTOTYPES.items():
        assert len(arguments) == len(signatures[name].args), name


def test_processes_run_the_kernels_without_numba() -> None:
    """Loading numba costs two seconds of CPU: brokers and workers must not."""
    code = (
        "import sys, lakestream.records as r; r.warm_up(); assert r.crc32c(b'123456789') == 0xE3069283; "
        "assert 'numba' not in sys.modules"
    )
    native.warm_up()
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_cached_object_is_loaded_quickly() -> None:
    native.warm_up()
    start_s = time.process_time()
    native.Kernels()
    assert time.process_time() - start_s < 0.5


def test_this_processor_runs_its_own_crc_instruction() -> None:
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    if " sse4_2" not in flags or not llvm.get_process_triple().startswith("x86_64"):
        assert checksum.update is checksum.update_portable
        return
    assert checksum.NATIVE
    assert checksum.update is checksum.update_native
    # The instruction with a 64 bit operand: F2 REX.W 0F 38 F1.
    code = machine_code.load_object(native.RECORD_KERNELS)
    assert any(bytes([0xF2, rex, 0x0F, 0x38, 0xF1]) in code for rex in range(0x48, 0x50))


@pytest.mark.parametrize(
    "update",
    [checksum.update_portable, *([checksum.update_native] if checksum.NATIVE else [])],
    ids=lambda each: each.__name__,
)
def test_each_checksum_equals_the_reference(update: object) -> None:
    def entry(crc, buffer, start, end):  # type: ignore[no-untyped-def]
        return update(crc, buffer, start, end)  # type: ignore[operator]

    signature = types.uint32(types.uint32, types.int64, types.int64, types.int64)
    function = cfunc(signature, nopython=True)(entry).ctypes
    data = np.random.default_rng(1).bytes(10_100)
    at = np.frombuffer(data, np.uint8).ctypes.data
    for size in SIZES:
        for start in (0, 1, 3):
            assert function(0, at, start, start + size) == google_crc32c.value(data[start : start + size])
            assert function(77, at, start, start + size) == google_crc32c.extend(77, data[start : start + size])


def test_a_fresh_cache_is_built_and_then_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESTREAM_CACHE", str(tmp_path / "cache"))
    built: list[Path] = []

    def build(kernels: machine_code.KernelSet, path: Path) -> bytes:
        built.append(path)
        path.write_bytes(b"object")
        return b"object"

    monkeypatch.setattr(machine_code, "build_object", build)
    assert machine_code.load_object(native.RECORD_KERNELS) == b"object"
    assert machine_code.load_object(native.RECORD_KERNELS) == b"object"
    assert [path.parent for path in built] == [tmp_path / "cache"]


def test_a_cache_that_cannot_be_written_does_not_stop_anybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LAKESTREAM_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(machine_code, "build_object", lambda kernels, path: os.fsencode(path.name))
    assert machine_code.load_object(native.RECORD_KERNELS).startswith(b"kernels-")


def test_a_failed_build_says_why(tmp_path: Path) -> None:
    kernels = replace(native.RECORD_KERNELS, build="lakestream.records.kernels.no_such_module")
    with pytest.raises(RuntimeError, match="no_such_module"):
        machine_code.build_object(kernels, tmp_path / "x.o")
