"""The loggers of a broker as a resource with settings: each name with its level, in Kafka's words."""

import logging
from collections.abc import Sequence
from typing import Final

from lakestream.errors import InvalidSetting

ROOT: Final = "root"
_OURS: Final = "lakestream"
_LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_WORDS: Final = {level: word for word, level in _LEVELS.items()}


def levels() -> dict[str, str]:
    """Of the root and of the program's own loggers, in order of their names."""
    names = [ROOT, *(name for name in sorted(logging.root.manager.loggerDict) if name.split(".")[0] == _OURS)]
    return {name: _word(_logger(name).getEffectiveLevel()) for name in names}


def check_level(name: str, level: str | None) -> None:
    """Raises `InvalidSetting`. A level of None is that of the logger's parent."""
    if name not in levels():
        raise InvalidSetting(f"there is no logger {name}")
    if level is None and name == ROOT:
        raise InvalidSetting("the root logger has a level of its own: set it instead")
    if level is not None and level not in _LEVELS:
        raise InvalidSetting(f"{level} is no level of a logger: choose one of {', '.join(_LEVELS)}")


def set_levels(wanted: Sequence[tuple[str, str | None]]) -> None:
    """Of loggers and levels that were checked."""
    for name, level in wanted:
        _logger(name).setLevel(logging.NOTSET if level is None else _LEVELS[level])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)


def _word(level: int) -> str:
    return _WORDS.get(level, "INFO" if level > logging.DEBUG else "DEBUG")
