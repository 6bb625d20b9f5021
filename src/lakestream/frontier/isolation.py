"""Faults that nobody foresaw, kept to the topic that they met."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from lakestream.errors import LakestreamError, Unexpected

_log = logging.getLogger(__name__)


@contextmanager
def isolated(topic: str) -> Iterator[None]:
    """Around work on one topic whose `LakestreamError`s are dealt with outside. Whatever else goes wrong in it, an
    error of a library over what an engine wrote or a mistake of ours, is an `Unexpected`, with its stack in the log:
    all other topics go on. Nothing is half done by it that a crash could not have left so."""
    try:
        yield
    except LakestreamError:
        raise
    except Exception as error:
        _log.exception("topic %s: nobody foresaw this; please report it", topic)
        raise Unexpected(
            f"{type(error).__name__}: {error}; a fault in Lakestream: please report it with its stack, which is logged"
        ) from error
