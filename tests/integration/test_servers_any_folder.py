"""The servers that tests need run wherever the tests can: root's home is closed to everybody else."""

import os
import shutil
from pathlib import Path

import psycopg2
import pytest
from conftest import need
from support.postgres import postgres, postgres_programs


@pytest.mark.skipif(os.geteuid() != 0, reason="everybody but root runs the server as himself")
def test_a_root_whose_folders_are_closed_has_a_postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Path(need(postgres_programs(), "PostgreSQL (initdb and postgres)"))
    packages = programs.parents[2]
    if not (packages / "pgserver").exists():
        pytest.skip("the system's PostgreSQL is open to everybody")
    closed = tmp_path / "closed"
    (closed / "tmp").mkdir(parents=True)
    closed.chmod(0o700)
    for part in ("pgserver", "pgserver.libs"):
        shutil.copytree(packages / part, closed / "packages" / part)
    monkeypatch.setattr("tempfile.tempdir", str(closed / "tmp"))
    with postgres(str(closed / "packages" / programs.relative_to(packages))) as uri:
        connection = psycopg2.connect(uri.replace("+psycopg2", ""))
        connection.close()
