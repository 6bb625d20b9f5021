"""Log lines on standard error: JSON, one object a line, for programs; text for a person who watches."""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from lakestream.settings import LogFormat

_NOBODY: Mapping[str, Any] = MappingProxyType({})


class _JsonLines(logging.Formatter):
    """`about`: what every line of this process says of it."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        super().__init__()
        self._about = about

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._about,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def to_stderr(form: LogFormat = LogFormat.AUTO, about: Mapping[str, Any] = _NOBODY, level: int = logging.INFO) -> None:
    """Call when the process starts, and again when its settings are known."""
    handler = logging.StreamHandler(sys.stderr)
    if form is LogFormat.TEXT or (form is LogFormat.AUTO and sys.stderr.isatty()):
        whose = f"worker {about['worker']} " if "worker" in about else ""
        handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)-7s {whose}%(name)s: %(message)s"))
    else:
        handler.setFormatter(_JsonLines(about))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("py4j", "pyiceberg", "uvicorn.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
