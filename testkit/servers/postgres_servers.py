"""Further PostgreSQL servers of a test: standbys of a server, and data folders that were restored."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from examples.demo.postgres import PostgresFailed, Server, run_as_server

_OPTIONS = "-c listen_addresses='' -c fsync=off -c shared_buffers=16MB"

RECOVERED_S = 120.0


@contextmanager
def started(like: Server, data: Path, folder: Path) -> Iterator[Server]:
    """Run the data folder `data` as a server whose socket and log are in `folder`."""
    log = folder / "server.log"
    log.touch()
    if os.getuid() == 0:
        shutil.chown(log, "nobody")
    options = f"{_OPTIONS} -c unix_socket_directories={folder}"
    control = [str(like.programs / "pg_ctl"), "-D", str(data), "-w", "-t", "120"]
    start = [*control, "-l", str(log), "-o", options, "start"]
    if os.getuid() == 0:
        # The restore_command is this Python, which may lie where `nobody` cannot look.
        may_look = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        start = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *may_look, *start]
    with log.open("ab") as said:
        done = subprocess.run(start, stdout=said, stderr=said, cwd=folder, check=False)
    assert done.returncode == 0, log.read_text()
    try:
        yield Server(folder, like.programs, like.password)
    finally:
        _stop([*control, "-m", "immediate", "stop"], data, folder)


def _stop(argv: list[str], data: Path, folder: Path) -> None:
    try:
        run_as_server(argv, folder)
    except PostgresFailed:
        if (data / "postmaster.pid").exists():
            raise
        # It ended by itself, as a server does that cannot recover to the moment it was told.


@contextmanager
def standby(of: Server) -> Iterator[Server]:
    """A standby that streams from `of`."""
    with _folder() as folder:
        data = folder / "data"
        environ = os.environ.get("PGPASSWORD")
        os.environ["PGPASSWORD"] = of.password
        try:
            run_as_server(
                [str(of.programs / "pg_basebackup"), "-D", str(data), "-R", "-c", "fast", "-d", of.url("postgres")],
                folder,
            )
        finally:
            os.environ.pop("PGPASSWORD")
            if environ is not None:
                os.environ["PGPASSWORD"] = environ
        with started(of, data, folder) as running:
            yield running


@contextmanager
def recovered(like: Server, restore: Callable[[Path], object], within_s: float = RECOVERED_S) -> Iterator[Server]:
    """Start the data folder that `restore` makes at a path, and wait until it has recovered and takes writes."""
    with _folder() as folder:
        data = folder / "data"
        restore(data)
        if os.getuid() == 0:
            subprocess.run(["chown", "-R", "nobody:nogroup", str(data)], check=True)
        with started(like, data, folder) as running:
            _wait_until_recovered(running, within_s)
            yield running


def _wait_until_recovered(server: Server, within_s: float) -> None:
    """Raises `AssertionError` with the server's log if it does not get there, or ends."""
    deadline_s = time.monotonic() + within_s
    try:
        while server.sql("postgres", "SELECT pg_is_in_recovery()") != "f":
            assert time.monotonic() < deadline_s, _end_of_log(server)
            time.sleep(0.05)
    except PostgresFailed as failed:
        # It takes readers before it recovers, so it may end after it was said to be started.
        raise AssertionError(_end_of_log(server)) from failed


def _end_of_log(server: Server) -> str:
    return (server.folder / "server.log").read_text()[-3000:]


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rota-pg-", dir="/tmp"))
    if os.getuid() == 0:
        shutil.chown(folder, "nobody")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
