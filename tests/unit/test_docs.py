"""Pages that name files of the source tree name those that there are."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = re.compile(r"`([a-z_]+(?:/[a-z_0-9]+)+\.py)`")


def test_the_walks_name_each_file_once_and_count_them() -> None:
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    walks = page.partition("## Three walks through the house")[2].partition("\n## ")[0]
    named = FILE.findall(walks)
    assert [file for file in named if not (ROOT / "src" / "lakestream" / file).is_file()] == []
    assert sorted(named) == sorted(set(named))
    told = {walk: len(FILE.findall(walk)) for walk in walks.split("\n\n") if FILE.search(walk)}
    assert [int(re.findall(r"\((\d+) files", walk)[0]) for walk in told] == list(told.values())


def test_pages_name_files_that_there_are() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    folders = {path.name for path in (ROOT / "src" / "lakestream").iterdir() if path.is_dir()}
    missing = [
        f"{page.name}: {file}"
        for page in pages
        for file in FILE.findall(page.read_text())
        if file.partition("/")[0] in folders and not (ROOT / "src" / "lakestream" / file).is_file()
    ]
    assert missing == []
