"""A failure of PostgreSQL's programs is reported once, with the program's name once."""

import subprocess
from pathlib import Path

import pytest

from tasks.backup.sources.postgres_database import Database
from tasks.backup.sources.postgres_tools import NoTool, PostgresFailed, Tools, check_restricting


def test_an_error_names_the_program_once(tmp_path: Path) -> None:
    database = Database("postgresql://nowhere/db", tmp_path)
    for name in ("psql", "pg_dump"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho '{name}: error: no such host' >&2; exit 2\n")
        program.chmod(0o755)
    with pytest.raises(PostgresFailed, match=r"^psql: error: no such host$"):
        database.ask(Tools(tmp_path, "17.2"), "SELECT 1")
    with (
        pytest.raises(PostgresFailed, match=r"^pg_dump ended with exit code 2: error: no such host$"),
        database.running([str(tmp_path / "pg_dump")], subprocess.DEVNULL, subprocess.DEVNULL),
    ):
        pass


@pytest.mark.parametrize(
    ("version", "fits"), [("17.5", False), ("17.6", True), ("15.13", False), ("18.0", True), ("12.22", False)]
)
def test_parts_are_restored_only_by_a_psql_that_obeys_nothing_but_sql(version: str, fits: bool) -> None:
    tools = Tools(Path("/programs"), version)
    if fits:
        check_restricting(tools)
        return
    with pytest.raises(NoTool, match=f"PostgreSQL {version}, whose psql runs what a dump tells it to"):
        check_restricting(tools)
