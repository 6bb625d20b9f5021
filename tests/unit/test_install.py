"""tools/install.py: uv asks the package index that pip was told of."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "install.py"
spec = importlib.util.spec_from_file_location("install", TOOL)
assert spec is not None
assert spec.loader is not None
install = importlib.util.module_from_spec(spec)
spec.loader.exec_module(install)


def test_pips_files_and_environment_reach_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = http://global.invalid/simple\ncert = /etc/ca.pem\n"
        "[install]\nindex-url = http://install.invalid/simple\nextra-index-url =\n  http://a.invalid\n  http://b.invalid\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels /more")

    found = install.uv_settings()

    assert found["UV_DEFAULT_INDEX"] == "http://install.invalid/simple"
    assert found["UV_INDEX"] == "http://a.invalid http://b.invalid"
    assert found["UV_FIND_LINKS"] == "/wheels,/more"


def test_what_the_environment_says_wins_over_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[install]\nindex-url = http://install.invalid/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_INDEX_URL", "http://environment.invalid/simple")

    assert install.uv_settings()["UV_DEFAULT_INDEX"] == "http://environment.invalid/simple"
