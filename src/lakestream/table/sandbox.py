"""What nothing vouches for is parsed first where it can do no harm: in a process of its own.

The libraries that parse footers and manifests do not survive every damaged one: some abort the process, some read
beyond their memory. Files of ours carry checksums and never come here; those of other engines are tried once, before
this process touches them. The other process is started when the first of them is met, and ends with this one.
"""

import atexit
import importlib
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Final

import msgspec

from lakestream.errors import CorruptObject, LakestreamError, Unavailable
from lakestream.records import crc32c

Attempt = Callable[[str, bytes], None]
"""Parses the bytes of the file with that path, all that will be parsed of them later. A function of a module."""

CPU_LIMIT_S: Final = 20.0
"""For a file and for each further MiB of it: ten times what a slow machine needs."""
_PATIENCE: Final = 5
"""How much longer a process may take that does not get the CPU."""
MEMORY_BYTES: Final = 2 << 30
_AT_ONCE: Final = 16
_REMEMBERED: Final = 100_000
_CRASHES: Final = frozenset(
    {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGPROF}
)
"""What a file can do to the process that parses it; whatever else ends one is not the file's doing. SIGPROF is the
end of its CPU time."""


class _Request(msgspec.Struct, frozen=True, array_like=True):
    module: str
    name: str
    files: list[tuple[str, bytes]]
    cpu_limit_s: float


class Sandbox:
    """Blocking, for threads; they take turns. Verdicts are remembered: nothing is tried twice, whatever it did."""

    def __init__(self, cpu_limit_s: float = CPU_LIMIT_S) -> None:
        self._cpu_limit_s = cpu_limit_s
        self._turn = threading.Lock()
        self._child: _Child | None = None
        self._verdicts: OrderedDict[tuple[str, str, int], str] = OrderedDict()
        """By attempt, path and checksum what is wrong, or nothing."""

    def check(self, attempt: Attempt, path: str, data: bytes) -> None:
        """Returns if the bytes are safe to parse. `CorruptObject`, which names the file, if not; `Unavailable` if that
        could not be found out."""
        [trouble] = self.check_each(attempt, [(path, data)])
        if trouble is not None:
            raise trouble

    def check_each(self, attempt: Attempt, files: Sequence[tuple[str, bytes]]) -> list[LakestreamError | None]:
        """The same of several, with the errors in their places."""
        names = [(attempt.__qualname__, path, crc32c(data)) for path, data in files]
        unknown: LakestreamError | None = None
        with self._turn:
            todo = [(name, file) for name, file in zip(names, files, strict=True) if name not in self._verdicts]
            try:
                while todo:
                    verdicts = self._try(attempt, [file for _, file in todo[:_AT_ONCE]])
                    self._verdicts.update(zip([name for name, _ in todo], verdicts, strict=False))
                    del todo[: len(verdicts)]
            except Unavailable as error:
                unknown = error
            found = [self._verdicts.get(name) for name in names]
            while len(self._verdicts) > _REMEMBERED:
                self._verdicts.popitem(last=False)
        return [unknown if trouble is None else CorruptObject(trouble) if trouble else None for trouble in found]

    def close(self) -> None:
        """Ends the other process, if there is one; the next file starts a new one."""
        with self._turn:
            self._drop()

    def forget(self) -> None:
        """For a process that was forked from ours: the pipe is for two, and nobody there may hold the lock."""
        self._turn = threading.Lock()
        self._child = None

    def _try(self, attempt: Attempt, files: list[tuple[str, bytes]]) -> list[str]:
        """The verdicts, only of the first few if the process ends. The last of them is about the file that ended it, if
        that was its first; else an earlier one may have harmed it, and the file is tried again in a fresh process."""
        found: list[str] = []
        request = _Request(attempt.__module__, attempt.__qualname__, files, self._cpu_limit_s)
        try:
            child = self._child = self._child or _Child()
            child.pipe.send_bytes(msgspec.msgpack.encode(request))
            for path, data in files:
                if not child.pipe.poll(_cpu_limit_s(request, data) * _PATIENCE):
                    self._drop()
                    raise Unavailable(f"{path} is not tried out: the process that had to do it does not answer")
                found.append(child.pipe.recv_bytes().decode())
                child.is_fresh = False
        except (EOFError, ConnectionError):
            path, _ = files[len(found)]
            code = child.ended()
            self._drop()
            if -code not in _CRASHES:
                raise Unavailable(f"{path} is not tried out: the process that had to do it ended, {code}") from None
            if child.is_fresh:
                name = signal.Signals(-code).name
                found.append(f"{path} is damaged: it makes the process that reads it crash ({name})")
        except OSError as error:
            self._drop()
            raise Unavailable(f"{files[0][0]} cannot be tried out in a process of its own now: {error}") from error
        return found

    def _drop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()


class _Child:
    def __init__(self) -> None:
        self.is_fresh = True
        """It has parsed nothing yet that may have harmed it."""
        self.pipe, theirs = multiprocessing.Pipe()
        with theirs:
            # A session of its own: who interrupts this process at a terminal does not mean that one.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def ended(self) -> int:
        return self._process.wait()

    def end(self) -> None:
        self.pipe.close()
        self._process.kill()
        self._process.wait()


SANDBOX: Final = Sandbox()
"""One for all of this process."""
atexit.register(SANDBOX.close)
os.register_at_fork(after_in_child=SANDBOX.forget)


def _serve(pipe: Connection) -> None:
    """Until the other side closes."""
    decoder = msgspec.msgpack.Decoder(_Request)
    while True:
        try:
            request = decoder.decode(pipe.recv_bytes())
        except EOFError:
            return
        attempt: Attempt = getattr(importlib.import_module(request.module), request.name)
        for path, data in request.files:
            signal.setitimer(signal.ITIMER_PROF, _cpu_limit_s(request, data))
            trouble = _trouble(attempt, path, data)
            signal.setitimer(signal.ITIMER_PROF, 0)
            pipe.send_bytes(trouble.encode())


def _cpu_limit_s(request: _Request, data: bytes) -> float:
    return request.cpu_limit_s * (1 + len(data) / (1 << 20))


def _trouble(attempt: Attempt, path: str, data: bytes) -> str:
    try:
        attempt(path, data)
    except LakestreamError as error:
        return str(error)
    except MemoryError:
        return f"{path} is damaged: reading it takes more than {MEMORY_BYTES >> 20} MiB of memory"
    except Exception as error:
        # Whatever a parser raises here: the bytes are not what they should be.
        return f"{path} is damaged: {error!r}"
    return ""


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    with Connection(int(sys.argv[1])) as ours:
        _serve(ours)
