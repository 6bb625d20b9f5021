"""The repository checks itself: rules that no linter knows."""

import ast
import functools
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MAX_LINES = 400
MAX_FILES = 14
pytestmark = pytest.mark.xdist_group("tidy")  # One worker parses each file once.

LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError")
MACHINE = re.compile(
    r"/home/\w|/root/|/work/|/Users/\w"
    r"|\b(repo1?\.maven|repo\.maven|pypi\.org|files\.pythonhosted|registry\.npmjs|proxy\.golang|crates\.io)\b"
)


@functools.cache
def _text_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    skipped = {"requirements.lock", "requirements-dev.lock", "LICENSE"}
    return [path for path in paths if path.is_file() and path.name not in skipped and b"\0" not in path.read_bytes()]


def _id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _room(path: Path) -> str:
    return str(path.relative_to(ROOT / "src" / "lakestream"))


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield "." * node.level + (node.module or "")


def test_there_is_something_to_check() -> None:
    assert len(SOURCES) > 20
    assert any(path.name == "README.md" for path in _text_files())


def test_files_are_short() -> None:
    lengths = {_id(path): len(path.read_text().splitlines()) for path in _text_files() if path.suffix == ".py"}
    assert {path: lines for path, lines in lengths.items() if lines > MAX_LINES} == {}


def test_rooms_are_small() -> None:
    """A room of more than a dozen files, or a few more, has a second one in it. Handlers are one file for each API."""
    rooms = Counter(_id(path.parent) for path in SOURCES if path.name != "__init__.py")
    assert {room: files for room, files in rooms.items() if files > MAX_FILES} == {
        "src/lakestream/kafka/apis": rooms["src/lakestream/kafka/apis"]
    }


def test_nothing_is_left_over() -> None:
    found = [
        f"{_id(path)}:{number}: {line.strip()}"
        for path in _text_files()
        if path != Path(__file__).resolve()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if LEFTOVER.search(line)
    ]
    assert found == []


def test_no_machine_is_named() -> None:
    found = [
        f"{_id(path)}:{number}: {line.strip()}"
        for path in _text_files()
        if path != Path(__file__).resolve()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if MACHINE.search(line)
    ]
    assert found == []


def test_every_module_says_what_it_is() -> None:
    assert [_id(path) for path in SOURCES if len(ast.get_docstring(_tree(path)) or "") < 16] == []


def test_init_files_only_export() -> None:
    def exports(position: int, node: ast.stmt) -> bool:
        if isinstance(node, ast.Assign):
            return [ast.unparse(target) for target in node.targets] == ["__all__"]
        is_docstring = position == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        return is_docstring or isinstance(node, ast.Import | ast.ImportFrom)

    found = [
        f"{_id(path)}:{node.lineno}: {ast.unparse(node)}"
        for path in SOURCES
        if path.name == "__init__.py"
        for position, node in enumerate(_tree(path).body)
        if not exports(position, node)
    ]
    assert found == []


def test_imports_stand_at_the_top() -> None:
    found = {
        f"{_id(path)}:{node.lineno}: {name}"
        for path in SOURCES
        for function in ast.walk(_tree(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        for name in _imported(node)
    }
    assert found == set()


def test_only_the_command_line_prints() -> None:
    found = [
        f"{_id(path)}:{node.lineno}"
        for path in SOURCES
        if not _room(path).startswith("cli/")
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert found == []


def test_tests_of_a_group_stay_together(request: pytest.FixtureRequest) -> None:
    """Or each worker starts every server for itself: a pytest of which xdist does not know how it names tests."""
    if "PYTEST_XDIST_WORKER" in os.environ and request.config.getoption("loadgroup"):
        assert request.node.nodeid.endswith("@tidy")


def test_tests_leave_the_event_loop_to_pytest() -> None:
    """`async def test_…` has a loop. Only what is about loops, or runs in a thread of its own, makes another."""
    own = {
        "tests/integration/external/test_external_spark.py",
        "tests/integration/engines/outside/test_rewrite.py",
        "tests/unit/objects/local/test_objects_shared_reads.py",
    }
    found = {
        _id(path)
        for path in (ROOT / "tests").rglob("*.py")
        if "asyncio.run(" in path.read_text()
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "asyncio.run"
    }
    assert found == own


def test_what_tests_import_from_each_other_is_there() -> None:
    """A name that moved is found before the test that wants it is run."""
    found = []
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("support"):
                target = ROOT / "tests" / node.module.replace(".", "/")
                source = target.with_suffix(".py")
                names = _top_names(source) if source.exists() else {part.stem for part in target.glob("*")}
                found += [f"{_id(path)}: {node.module}.{a.name}" for a in node.names if a.name not in names]
    assert found == []


@functools.cache
def _top_names(path: Path) -> set[str]:
    """What a module defines or imports at its top."""
    return set(re.findall(r"^(?:async def|def|class)? *(\w+)", path.read_text(), re.M)) | {
        alias.asname or alias.name
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


def test_the_lock_names_versions_and_hashes_only() -> None:
    locks = [ROOT / "requirements.lock", ROOT / "requirements-dev.lock"]
    lines = [line for lock in locks for line in lock.read_text().splitlines()]
    legal = re.compile(r"[a-z0-9][a-z0-9.-]*==\S+( ; [^/]*)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?")
    assert [line for line in lines if not legal.fullmatch(line)] == []


def test_a_class_name_means_one_thing() -> None:
    defined: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined.setdefault(node.name, []).append(_room(path))
    assert {name: paths for name, paths in defined.items() if len(paths) > 1} == {}
