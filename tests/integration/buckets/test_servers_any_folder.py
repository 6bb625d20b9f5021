"""The servers that tests need run wherever the tests can: root's home is closed to everybody else."""

import shutil
from pathlib import Path

import psycopg2
import pytest
from conftest import need
from support.servers.postgres import postgres, postgres_programs


def test_whoever_has_closed_folders_has_a_postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Path(need(postgres_programs(), "PostgreSQL (initdb and postgres)"))
    packages = programs.parents[2]
    closed = tmp_path / "closed"
    (closed / "tmp").mkdir(parents=True)
    closed.chmod(0o700)
    if (packages / "pgserver").exists():  # the system's PostgreSQL is open to everybody
        for part in ("pgserver", "pgserver.libs"):
            shutil.copytree(packages / part, closed / "packages" / part)
        programs = closed / "packages" / programs.relative_to(packages)
    monkeypatch.setattr("tempfile.tempdir", str(closed / "tmp"))
    with postgres(str(programs)) as uri:
        connection = psycopg2.connect(uri.replace("+psycopg2", ""))
        connection.close()
