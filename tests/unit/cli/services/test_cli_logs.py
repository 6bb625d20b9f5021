"""Log lines as programs read them."""

import json
import logging
from collections.abc import Iterator

import pytest

from lakestream.cli.services import logs
from lakestream.settings import LogFormat


@pytest.fixture(autouse=True)
def root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_json_line_says_who_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    logs.to_stderr(LogFormat.JSON, {"process": "broker", "broker": 3})
    try:
        raise ValueError("no “such” thing\nat all")
    except ValueError:
        logging.getLogger("lakestream.x").exception("it %s", "failed")
    logging.getLogger("lakestream.x").debug("nobody wants to know")
    (line,) = capsys.readouterr().err.splitlines()
    said = json.loads(line)
    assert (said["level"], said["logger"], said["message"]) == ("error", "lakestream.x", "it failed")
    assert (said["process"], said["broker"]) == ("broker", 3)
    assert "ValueError: no “such” thing\nat all" in said["error"]
    assert said["time"].endswith("+00:00")


@pytest.mark.parametrize(("form", "is_json"), [(LogFormat.TEXT, False), (LogFormat.AUTO, True)])
def test_text_is_for_people(capsys: pytest.CaptureFixture[str], form: LogFormat, is_json: bool) -> None:
    logs.to_stderr(form)
    logging.getLogger("lakestream.x").warning("slow")
    line = capsys.readouterr().err.strip()
    assert line.startswith("{") is is_json
    assert "slow" in line
