"""Starts a physical backup of a PostgreSQL server as a scratch server, recovers it, and reads all of it."""

import shutil
import subprocess
from typing import Final
from urllib.parse import unquote, urlsplit

from tasks.backup.sources.data_folder import server_major
from tasks.backup.sources.postgres_tools import PostgresFailed
from tasks.backup.sources.source import RestoreTarget
from tasks.drill.dumps import check_databases, compare_tables
from tasks.drill.proving import DrillWork, Findings
from tasks.drill.scratch_server import ScratchServer, server_tools
from tasks.wal.fetch import FOLDER
from tasks.wal.restore import CONFIG, Moment, restore_server

_SUPERUSER: Final = "SELECT rolname FROM pg_roles WHERE rolsuper AND rolcanlogin ORDER BY oid LIMIT 1"
_DATABASES: Final = "SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY datname"
_AMCHECK: Final = "SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'"
_SAID_MAX: Final = 10


def prove_base_backup(work: DrillWork, found: Findings) -> None:
    """Restore the data folder, start a server on it, and read and check all of its databases.

    Raises `Damaged`, `NotRestorable` and `PostgresFailed` if it does not restore or start, `NoTool` if this member has
    no server that fits.
    """
    major = server_major(work.manifest)
    server = ScratchServer(work.scratch / "server", server_tools(work.access, major), work.watch)
    _restore(work, server, found)
    server.take_over()
    # Prepared transactions of the server that was backed up have to be recovered.
    settings = {"wal_level": "replica", "max_prepared_transactions": "200"}
    if work.params.wal is not None:
        server.recover(settings)
        # They hold what opens the archive, and the SQL of the restored databases may read the data folder.
        for left in (server.data / CONFIG, server.data / FOLDER):
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
    with server.running(settings):
        server.superuser = _superuser(work, server)
        found.how.append(f"started as a server {server.tools.version}, and recovered to {_position(server)}")
        databases = server.ask(_DATABASES).splitlines()
        _amcheck(server, found)
        for name in databases:
            _read(server, name)
            compare_tables(work, server.database(name), server, [], found)
        found.how.append(f"all of {len(databases)} databases read by pg_dump")
        default = ["postgres"] if "postgres" in databases else databases[:1]
        check_databases(work, server, default, found)


def _restore(work: DrillWork, server: ScratchServer, found: Findings) -> None:
    found_spaces = [entry.tablespace for entry in work.stored().manifest.files if entry.tablespace is not None]
    spaces = {space.name: str(server.spaces / str(space.oid)) for space in found_spaces}
    if spaces:
        found.how.append(f"restored with {len(spaces)} tablespaces, each in a folder of its own")
    target = RestoreTarget(str(server.data), tablespaces=spaces, postgres_bin=str(server.tools.folder))
    if work.params.wal is None:
        remarks = work.restore(target).remarks
        found.how += [remark for remark in remarks if remark not in work.manifest.remarks]
        return
    done = restore_server(
        [work.manifest],
        server.data,
        Moment(),
        work.params.wal.url,
        wal_options=work.wal_options,
        keys=work.keys,
        restore=lambda backup: work.restore(target, backup),
    )
    found.how.append(f"restored with the archived log, which reaches to {done.archived}")


def _superuser(work: DrillWork, server: ScratchServer) -> str:
    """Return the name of a superuser of the restored server. Raises `PostgresFailed`."""
    of_source = unquote(urlsplit(str(work.manifest.source.get("url", ""))).username or "")
    said = ""
    for user in dict.fromkeys(filter(None, (of_source, "postgres"))):
        try:
            if name := server.database("template1", user).ask(server.tools, _SUPERUSER):
                return name
        except PostgresFailed as error:
            said = f": {error}"
    raise PostgresFailed(f"the restored server has no superuser that may log in{said}")


def _position(server: ScratchServer) -> str:
    return server.ask("SELECT pg_current_wal_lsn()")


def _amcheck(server: ScratchServer, found: Findings) -> None:
    """Let pg_amcheck check tables and B-tree indexes of all databases. What it finds is a problem in `found`."""
    if server.ask(_AMCHECK) == "0":
        found.how.append("not checked by pg_amcheck: this member has no extension amcheck")
        return
    argv = [server.tools.program("pg_amcheck"), "--all", "--install-missing", "--no-password"]
    argv.append(f"--maintenance-db={server.database('template1').url}")
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        found.how.append(f"not checked by pg_amcheck: {argv[0]} is not there")
        return
    if done.returncode == 0:
        found.how.append("tables and indexes checked by pg_amcheck")
        return
    said = (done.stdout.strip() or done.stderr.strip()).splitlines()
    found.problems += [f"pg_amcheck: {line.strip()}" for line in said[:_SAID_MAX]]


def _read(server: ScratchServer, name: str) -> None:
    """Read all content of a database once. Raises `PostgresFailed`."""
    database = server.database(name)
    argv = [server.tools.program("pg_dump"), "--format=custom", "--compress=0", "--no-password"]
    with database.running([*argv, f"--dbname={database.url}"], subprocess.DEVNULL, subprocess.DEVNULL):
        pass
