"""A MariaDB server on a Unix socket in a temporary folder, where Debian's package mariadb-server is installed.

The server runs as an ordinary user: as `nobody` if the caller is root.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT_PASSWORD = r"""it's: a # "password" \ ä"""
STARTED_S = 60.0

_PROGRAMS = "mariadbd", "mariadb-install-db", "mariadb", "mariadb-dump"
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))


def why_no_mariadb() -> str:
    """Say which program of MariaDB is missing; "" if all are installed."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    return f"not installed: {', '.join(missing)} (apt-get install mariadb-server)" if missing else ""


class MariadbRefused(Exception):
    """The server refused a statement. The message is the client's."""


@dataclass(frozen=True)
class RunningMariadb:
    """A running server. Its account is root, with the password `ROOT_PASSWORD`."""

    folder: Path

    def url(self, database: str = "", user: str = "root") -> str:
        """The server's URL, or that of a database, without a password."""
        return f"mysql://{user}@/{database}?socket={self.folder / 'socket'}"

    def sql(self, text: str, database: str = "", password: str = ROOT_PASSWORD) -> str:
        """The output of statements: a line for each row, values separated by tabs. Raises `MariadbRefused`."""
        argv = [
            "mariadb",
            "--no-defaults",
            f"--socket={self.folder / 'socket'}",
            "--user=root",
            "--batch",
            "--skip-column-names",
            "--comments",
            "--binary-mode",
        ]
        argv += ["--default-character-set=utf8mb4", database]
        environ = os.environ | {"MYSQL_PWD": password}
        done = subprocess.run(argv, env=environ, input=text.encode(), capture_output=True, check=False)
        if done.returncode:
            raise MariadbRefused(done.stderr.decode(errors="replace").strip())
        return done.stdout.decode(errors="backslashreplace").removesuffix("\n")


@contextmanager
def mariadb_server() -> Iterator[RunningMariadb]:
    """Run a server within the block."""
    folder = Path(tempfile.mkdtemp(prefix="rota-maria-", dir="/tmp"))  # a socket's path has at most 107 bytes
    process: subprocess.Popen[bytes] | None = None
    try:
        _hand_over(folder)
        data = folder / "data"
        _run(
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            folder=folder,
        ).wait()
        process = _run(
            "mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={folder / 'socket'}", "--skip-networking",
            "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=32M",
            folder=folder,
        )  # fmt: skip
        running = RunningMariadb(folder)
        _set_password(running, process)
        yield running
    finally:
        if process is not None:
            process.kill()
            process.wait()
        shutil.rmtree(folder)


def _set_password(running: RunningMariadb, process: "subprocess.Popen[bytes]") -> None:
    """Wait until the server answers, and give root its password."""
    deadline_s = time.monotonic() + STARTED_S
    quoted = ROOT_PASSWORD.replace("\\", "\\\\").replace("'", "''")
    while True:
        try:
            running.sql(f"SET PASSWORD FOR root@localhost = PASSWORD('{quoted}')", password="")
        except MariadbRefused as refused:
            said = f"{refused}\n{(running.folder / 'log').read_text(errors='replace')[-3000:]}"
            assert process.poll() is None, said
            assert time.monotonic() < deadline_s, said
            time.sleep(0.05)
        else:
            return


def _hand_over(folder: Path) -> None:
    (folder / "log").touch()
    if os.getuid() == 0:
        for path in (folder, folder / "log"):
            shutil.chown(path, "nobody")
        folder.chmod(0o755)


def _run(program: str, *more: str, folder: Path) -> "subprocess.Popen[bytes]":
    argv = [shutil.which(program, path=_PATH) or program, *more]
    if os.getuid() == 0:
        argv = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *argv]
    # Other tests of this process may have set TMPDIR to a folder that the server's user may not enter.
    environ = os.environ | {"TMPDIR": str(folder)}
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(argv, stdout=log, stderr=log, cwd=folder, env=environ)
