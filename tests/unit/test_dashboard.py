"""What the documents ask Prometheus for is what the processes tell."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["dashboard.json", "OPERATIONS.md"])
def test_a_page_names_documented_metrics_only(page: str) -> None:
    known = set(re.findall(r"^\| `(lakestream_\w+)`", (DOCS / "METRICS.md").read_text(), re.MULTILINE))
    asked = set(re.findall(r"\b(lakestream_(?:[a-z]+_)+[a-z]+)\b", (DOCS / page).read_text()))
    bare = {re.sub(r"_(total|bucket)$", "", name) for name in asked}
    assert bare
    assert bare - known == set()
