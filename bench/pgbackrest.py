"""A server of PostgreSQL 15 as Debian has it, whose log and backups pgBackRest keeps in a repository beside it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples.demo.postgres import USER, Server, postgres_server, run_as_server

PROGRAMS: Final = Path("/usr/lib/postgresql/15/bin")
"""The programs of the newest PostgreSQL that Debian 12 has, and that its pgBackRest 2.45 knows."""

_CONFIG: Final = """[global]
repo1-path={folder}/repo
repo1-retention-full=1
compress-type=zst
compress-level=3
process-max=2
start-fast=y
log-level-console=warn
log-path={folder}/log
lock-path={folder}/lock
spool-path={folder}/spool
[bench]
pg1-path={folder}/data
pg1-socket-path={folder}
pg1-user={user}
pg1-database=postgres
"""


def why_no_pgbackrest() -> str:
    """Say what is not installed; "": nothing."""
    if shutil.which("pgbackrest") is None:
        return "pgbackrest is not installed (apt-get install pgbackrest)"
    if not (PROGRAMS / "postgres").exists():
        return f"there is no {PROGRAMS}/postgres (apt-get install postgresql-15)"
    return ""


@dataclass(frozen=True)
class KeptServer:
    """A running server, and the commands of pgBackRest for it, as lines of shell."""

    server: Server

    @property
    def repo(self) -> Path:
        """The folder of the repository."""
        return self.server.folder / "repo"

    @property
    def restored(self) -> Path:
        """The data folder that `restore` makes."""
        return self.server.folder / "restored"

    def command(self, words: str) -> str:
        """Run pgBackRest as the user that the server runs as, who owns all the files."""
        as_user = "setpriv --reuid=nobody --regid=nogroup --clear-groups " if os.getuid() == 0 else ""
        folder = self.server.folder
        return f"(cd {folder}; {as_user}pgbackrest --config={folder}/pgbackrest.conf --stanza=bench {words})"

    def empty_target(self) -> str:
        """Make an empty folder for `restore`."""
        owner = "-o nobody -g nogroup " if os.getuid() == 0 else ""
        return f"rm -rf {self.restored}; install -d -m 700 {owner}{self.restored}"


@contextmanager
def kept_server(password: str) -> Iterator[KeptServer]:
    """Run a server, and make its stanza."""
    with postgres_server(password, PROGRAMS) as server:
        folder, kept = server.folder, KeptServer(server)
        (folder / "pgbackrest.conf").write_text(_CONFIG.format(folder=folder, user=USER))
        for name in ("repo", "log", "lock", "spool"):
            (folder / name).mkdir()
            if os.getuid() == 0:
                shutil.chown(folder / name, "nobody")
        push = f"pgbackrest --config={folder}/pgbackrest.conf --stanza=bench archive-push %p"
        for setting in ("archive_mode = on", f"archive_command = '{push}'", "max_wal_size = '4GB'"):
            server.sql("postgres", f"ALTER SYSTEM SET {setting}")
        control = [str(server.programs / "pg_ctl"), "-D", f"{folder}/data", "-w", "-t", "60", "-m", "fast"]
        run_as_server([*control, "-l", str(folder / "server.log"), "restart"], folder)
        yield kept
