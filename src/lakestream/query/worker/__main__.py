"""The process: requests from standard input, answers to standard output, one query at a time, until the door is gone.

SIGINT stops a query that runs; between queries it means nothing.
"""

import os
import pickle
import resource
import signal
import threading
from typing import BinaryIO, Final

import msgspec

from lakestream.errors import LakestreamError, QueryLimit
from lakestream.query.messages import LENGTH_BYTES, Examine, Failed, Reply, Request, RunQuery, SchemasNeeded
from lakestream.query.worker.examining import examine
from lakestream.query.worker.reading import Loop, UnknownSchemas
from lakestream.query.worker.running import Stopping, run
from lakestream.records import warm_up
from lakestream.schemas.codecs import install as install_codecs

_MEMORY_FIRST = b"1000"
"""When the machine runs out of memory this process goes before the others."""
_NICE: Final = 5
"""Where processors are short the log goes before questions about it."""


def main() -> None:
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _offer_first()
    os.nice(_NICE)
    # Before there is any other thread, which would get the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    stopping = Stopping()
    threading.Thread(target=_watch, args=(stopping,), name="stops", daemon=True).start()
    warm_up()
    install_codecs()
    loop = Loop()
    _send(answers, Failed("ready", ""))
    while (request := _next(requests)) is not None:
        _send(answers, _answer(request, loop, stopping))


def _watch(stopping: Stopping) -> None:
    while True:
        signal.sigwait({signal.SIGINT})
        stopping.now()


def _answer(request: Request, loop: Loop, stopping: Stopping) -> Reply:
    try:
        if isinstance(request, Examine):
            return examine(request.text)
        return _run(request, loop, stopping)
    except UnknownSchemas as error:
        return SchemasNeeded(error.topic_id)
    except LakestreamError as error:
        return Failed(type(error).__name__, str(error))
    except MemoryError:
        return Failed(QueryLimit.__name__, "the query needs more memory than this process may have")
    except Exception as error:
        return Failed("Unexpected", f"{type(error).__name__}: {error}")


def _run(request: RunQuery, loop: Loop, stopping: Stopping) -> Reply:
    signal.setitimer(signal.ITIMER_REAL, request.limits.watchdog_s)
    try:
        return run(request, loop, stopping)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _next(requests: BinaryIO) -> Request | None:
    head = requests.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    found: Request = pickle.loads(requests.read(int.from_bytes(head, "big")))
    return found


def _send(answers: BinaryIO, reply: Reply) -> None:
    body = msgspec.msgpack.encode(reply)
    answers.write(len(body).to_bytes(LENGTH_BYTES, "big"))
    answers.write(body)
    answers.flush()


def _offer_first() -> None:
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(_MEMORY_FIRST)
    except OSError:
        return


if __name__ == "__main__":
    main()
