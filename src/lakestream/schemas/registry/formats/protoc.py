"""protoc, in a process of its own: it is C++, and what it compiles comes from strangers.

Files may import each other's names as their schemas' references say, Google's own (`google/protobuf/…`,
`google/type/…`) and those that Confluent's clients know (`confluent/…`). Nothing else on this machine can be named.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Final

import grpc_tools
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.type import money_pb2

from lakestream.errors import Unavailable
from lakestream.schemas.registry.formats.builtin_protos import BUILTIN_PROTOS
from lakestream.schemas.registry.formats.format import Dependency, invalid

ROOT_NAME: Final = "__schema__.proto"
_TIMEOUT_S: Final = 60
_CPU_S: Final = 20
_MEMORY_BYTES: Final = 1 << 30
_MOST_ERROR: Final = 1000
_CODE: Final = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({cpu}, {cpu}))
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
from grpc_tools import _protoc_compiler
sys.exit(_protoc_compiler.run_main([argument.encode() for argument in sys.argv]))
"""


def compile_files(text: str, dependencies: Sequence[Dependency]) -> FileDescriptorSet:
    """The files with all that they import, the text's own last. Blocking. Raises `RegistryRefused` if it is not
    valid."""
    with TemporaryDirectory(prefix="lakestream-protoc-") as folder:
        place = Path(folder)
        for name, other in (*BUILTIN_PROTOS.items(), *dependencies):
            _write(place / "files", name, other)
        _write(place / "files", ROOT_NAME, text)
        done = _run(place)
        if done.returncode != 0:
            raise invalid(_reason(done, place))
        return FileDescriptorSet.FromString((place / "out").read_bytes())


def with_descriptor(own: FileDescriptorProto, dependencies: Sequence[Dependency]) -> FileDescriptorSet:
    """The same for a file that is given by its descriptor."""
    imports = "".join(f'import "{_checked(name)}";\n' for name in own.dependency)
    found = compile_files(f'syntax = "proto3";\n{imports}', dependencies)
    found.file[-1].CopyFrom(own)
    found.file[-1].name = ROOT_NAME
    return found


def _run(place: Path) -> "subprocess.CompletedProcess[bytes]":
    includes = [place / "files", *_includes()]
    try:
        return subprocess.run(
            [
                *(sys.executable, "-c", _CODE.format(cpu=_CPU_S, memory=_MEMORY_BYTES)),
                *(f"--proto_path={include}" for include in includes),
                *(f"--descriptor_set_out={place / 'out'}", "--include_imports", ROOT_NAME),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"protoc did not answer within {_TIMEOUT_S} s: try again") from error


def _includes() -> list[Path]:
    """Where Google's own files are."""
    return [Path(grpc_tools.__file__).parent / "_proto", Path(money_pb2.__file__).parents[2]]


def _write(folder: Path, name: str, text: str) -> None:
    path = folder / _checked(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.write_text(text, "utf-8")
    except (OSError, UnicodeEncodeError) as error:
        raise invalid(f"{name!r} cannot be a file of a Protobuf schema: {error}") from error


def _checked(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if not re.fullmatch(r"[\w./+-]{1,250}", name) or path.is_absolute() or ".." in path.parts or not path.parts:
        raise invalid(f"{name!r} is no name for a file that a Protobuf schema imports")
    return path


def _reason(done: "subprocess.CompletedProcess[bytes]", place: Path) -> str:
    told = done.stderr.decode(errors="replace").replace(f"{place}/files/", "")
    lines = [line for line in told.splitlines() if "warning:" not in line and not re.match(r"WARNING|W\d{4} ", line)]
    text = "; ".join(line.replace(f"{ROOT_NAME}:", "").strip() for line in lines)
    return text[:_MOST_ERROR] or f"protoc ended with {done.returncode}"
