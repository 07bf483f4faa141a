"""A PostgreSQL server for one drill: in the attempt's scratch folder, on a Unix socket only, and gone with the attempt.

PostgreSQL refuses to run as root. An attempt of root therefore runs the server as `nobody`, who may read what the
attempt may read, and write only the server's own folder (`tasks.needs.Needs.server_user`). While it runs SQL, the
kernel refuses it all else (`tasks.drill.enclosure`).
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tasks.access import Access
from tasks.backup.sources import postgres_tools
from tasks.backup.sources.postgres_database import Database
from tasks.backup.sources.postgres_tools import NoTool, PostgresFailed, Tools
from tasks.drill.enclosure import ServerRoom
from tasks.drill.watch import DrillWatch
from tasks.errors import Failed
from tasks.needs import Tool

SUPERUSER: Final = "rota_drill"

PROGRAMS: Final = "initdb", "postgres", "pg_ctl", "pg_amcheck", "pg_verifybackup", "pg_combinebackup", "pg_dump"
"""The programs of a server that a drill runs, beside those of `postgres_tools.NAMES`."""

_HELPERS: Final = "sh", "setpriv", "ipcrm"

_RIGHT: Final = "dac_read_search"
_AS_NOBODY: Final = (
    "setpriv",
    "--reuid=nobody",
    "--clear-groups",
    f"--inh-caps=-all,+{_RIGHT}",
    f"--ambient-caps=-all,+{_RIGHT}",
    "--no-new-privs",
)
"""Only the attempt's user may enter the folders of its scratch folder and of the backups: `nobody` gets the right to
read them, within what the kernel allows the attempt."""

_SETTINGS: Final[Mapping[str, str]] = {
    # Reached by this attempt only.
    "listen_addresses": "",
    "unix_socket_directories": ".",
    "port": "5432",
    "ssl": "off",
    # The copy is thrown away: nothing has to survive a crash.
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "restart_after_crash": "off",
    # The server tells nobody, follows nobody, and runs nobody's programs.
    "archive_mode": "off",
    "archive_cleanup_command": "",
    "primary_conninfo": "",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_logical_replication_workers": "0",
    "shared_preload_libraries": "",
    "session_preload_libraries": "",
    "local_preload_libraries": "",
    "autovacuum": "off",
    "event_source": "PostgreSQL",
    "logging_collector": "off",
    "log_destination": "stderr",
    "cluster_name": "",
    # The kernel lets an attempt write its scratch folder only.
    "dynamic_shared_memory_type": "mmap",
    "huge_pages": "off",
    "shared_buffers": "64MB",
    "maintenance_work_mem": "64MB",
    "max_connections": "20",
    # Without queries during recovery, the other limits need not be those of the server that was backed up.
    "hot_standby": "off",
    "jit": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "default_transaction_read_only": "off",
    "lc_messages": "C",
}
"""The server's settings, on its command line, so that no setting of a server that was backed up counts against them."""

_NO_ARCHIVE: Final[Mapping[str, str]] = {"restore_command": "", "recovery_end_command": ""}
"""For a server that has all its log. One that fetches log runs the commands by which a restore has configured it."""


class ServerUnfit(Failed):
    """This member cannot run a scratch server. This says nothing about the backup."""


_KILLED: Final = "was terminated by signal 9"
_COMPLAINT: Final = re.compile(r"\b(?:FATAL|PANIC|ERROR|DETAIL):|^(?!\s)[\w.]+: ")
_COMPLAINTS_MAX: Final = 4

_READY_LINE: Final = 7
_POLL_S: Final = 0.02


def server_programs(environ: Mapping[str, str], access: Access) -> Iterator[Tool]:
    """PostgreSQL's programs, those of its servers too, and what a server needs to be started (`tasks.needs.Tools`)."""
    for tool in postgres_tools.programs(environ, access):
        yield tool
        if tool.use == "run" and Path(tool.path).name == "psql":
            yield from (Tool(str(Path(tool.path).with_name(name)), "run") for name in PROGRAMS)
    for found in (shutil.which(name, path=environ.get("PATH", os.defpath)) for name in _HELPERS):
        if found is not None:
            yield Tool(os.path.realpath(found), "run")
    yield Tool("/bin/sh", "run")
    # A server fetches archived log by this Python (`tasks.wal.fetch`).
    yield Tool(os.path.realpath(sys.executable), "run")


def server_tools(access: Access, major: int) -> Tools:
    """Find the programs of a server of exactly version `major`. Raises `NoTool`."""
    found = postgres_tools.installed_tools(access.postgres_bin or os.environ.get("ROTA_POSTGRES_BIN"), os.environ)
    fit = [tools for tools in found if tools.major == major]
    for tools in fit:
        if all(Path(tools.program(name)).exists() for name in ("initdb", "postgres", "pg_ctl")):
            return tools
    here = ", ".join(f"{tools.version} in {tools.folder}" for tools in found) or "none"
    lacking = "has no initdb, postgres or pg_ctl: only the client's programs are installed" if fit else "is not there"
    raise NoTool(
        f"a drill needs a PostgreSQL server of version {major}, which {lacking} (found: {here}). Install the server's "
        f"package of version {major} on this node, or bind the drill to nodes that have it (group)"
    )


def server_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a scratch server: none of this process's that may hold a secret."""
    return {name: environ[name] for name in ("PATH", "PYTHONPATH", "TZ") if name in environ} | {"LC_ALL": "C"}


def as_server(argv: list[str]) -> list[str]:
    """Return the command line by which a server runs: as `nobody` if this process is root. Raises `NoTool`."""
    if os.geteuid() != 0:
        return argv
    if shutil.which("setpriv") is None:
        raise NoTool("a drill on a node that runs as root needs setpriv (package util-linux), which is not there")
    return [*_AS_NOBODY, "--regid=nogroup", *argv]


class ScratchServer:
    """A server whose data folder is `folder`/data. Its folder must be in the attempt's scratch folder."""

    def __init__(self, folder: Path, tools: Tools, watch: DrillWatch) -> None:
        self._folder = folder
        self._tools = tools
        self._watch = watch
        self._process: subprocess.Popen[bytes] | None = None
        self._descriptor = -1
        self.data = folder / "data"
        #: The folder for the tablespaces of a restored server.
        self.spaces = folder / "spaces"
        self.log = folder / "server.log"
        self.superuser = SUPERUSER
        # `nobody` makes the data folder in it. Nobody else can enter the scratch folder.
        folder.mkdir()
        folder.chmod(0o777 if os.geteuid() == 0 else 0o700)
        self.log.touch()

    @property
    def tools(self) -> Tools:
        """The programs that fit the server."""
        return self._tools

    def initialize(self) -> None:
        """Make an empty data folder. Raises `ServerUnfit`."""
        argv = [self._tools.program("initdb"), "-D", str(self.data), "-U", SUPERUSER, "--auth=trust", "-E", "UTF8"]
        done = subprocess.run(
            as_server([*argv, "--locale=C", "--no-sync"]),
            capture_output=True,
            text=True,
            cwd=self._folder,
            check=False,
        )
        if done.returncode != 0:
            as_whom = "; on a node of root, `nobody` must be able to run it" if os.geteuid() == 0 else ""
            raise ServerUnfit(f"{argv[0]} made no server{as_whom}: {done.stderr.strip()[-2000:]}")

    def take_over(self) -> None:
        """Make a data folder that was restored at `data` one that this server may be started on."""
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        for name, content in (("pg_hba.conf", "local all all trust\n"), ("pg_ident.conf", ""), ("own.conf", "")):
            (self._folder / name).write_text(content)
            (self._folder / name).chmod(0o644)
        if os.geteuid() == 0:
            for folder, folders, files in chain(os.walk(self.data), os.walk(self.spaces)):
                for path in (folder, *(f"{folder}/{name}" for name in (*folders, *files))):
                    shutil.chown(path, "nobody", "nogroup") if not os.path.islink(path) else None  # noqa: PTH114

    @contextmanager
    def running(self, settings: Mapping[str, str] | None = None) -> Iterator[None]:
        """Run the server during the block, once it has recovered. Raises `PostgresFailed`.

        It can reach nothing but its own folder and its callers, and has none of this process's variables: what was
        restored into it may be hostile.
        """
        room = ServerRoom(reads=(str(self._tools.folder.parent),), writes=(str(self._folder),))
        argv = room.argv(*self._argv({**_NO_ARCHIVE, **(settings or {})}))
        with self._started(argv, server_environment(os.environ)):
            yield

    def recover(self, settings: Mapping[str, str]) -> None:
        """Let the server recover with log that it fetches from an archive, and stop it. Raises `PostgresFailed`.

        For that it uses the network, and runs programs. Nothing of its content is run: nobody connects to it.
        """
        with self._started(self._argv(settings), os.environ):
            self._signal(signal.SIGINT)
            while self._process is not None and self._process.poll() is None:
                self._watch.check()
                time.sleep(_POLL_S)

    def _argv(self, settings: Mapping[str, str]) -> list[str]:
        own = {"config_file": "own.conf", "hba_file": "pg_hba.conf", "ident_file": "pg_ident.conf"}
        files = {name: str(self._folder / file) for name, file in own.items() if (self._folder / file).exists()}
        argv = [self._tools.program("postgres"), "-D", str(self.data)]
        return argv + [
            word for name, value in {**_SETTINGS, **files, **settings}.items() for word in ("-c", f"{name}={value}")
        ]

    @contextmanager
    def _started(self, argv: list[str], environ: Mapping[str, str]) -> Iterator[None]:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                as_server(argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder, env=dict(environ)
            )
        try:
            with self._watch.ending(self._kill):
                self._wait_until_ready(self._process)
                self._descriptor = os.open(self.data, os.O_PATH | os.O_DIRECTORY)
                yield
        except PostgresFailed as error:
            if _KILLED in self.log.read_text(errors="replace"):
                raise ServerUnfit(f"a process of the scratch server was killed, for want of memory? {error}") from error
            raise
        finally:
            self._stop(self._process)
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def database(self, name: str, user: str | None = None, **settings: str) -> Database:
        """Return a database of the running server, as `user` (default: the superuser) with these settings."""
        # A socket's path has at most 107 bytes, and a scratch folder's may be longer.
        socket = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        url = f"postgresql://{quote(user or self.superuser)}@/{quote(name, safe='')}?host={quote(socket, safe='')}"
        if settings:
            options = " ".join(f"-c {name}={value}" for name, value in settings.items())
            url += f"&options={quote(options, safe='')}"
        return Database(url, self._folder, None, str(self._tools.folder))

    def ask(self, query: str, database: str = "template1") -> str:
        """Return the output of psql for `query`, as the superuser. Raises `PostgresFailed`."""
        return self.database(database).ask(self._tools, query)

    def complaints(self) -> str:
        """Return the last errors in the server's log, and what a restore_command said; all lines if there are none."""
        lines = self.log.read_bytes()[-20_000:].decode(errors="replace").splitlines()
        told = [line for line in lines if _COMPLAINT.search(line)]
        return "; ".join(line.strip() for line in (told or lines)[-_COMPLAINTS_MAX:])

    def _wait_until_ready(self, process: "subprocess.Popen[bytes]") -> None:
        status = self.data / "postmaster.pid"
        while True:
            self._watch.check()
            if process.poll() is not None:
                raise PostgresFailed(f"the server on the restored copy did not start: {self.complaints()}")
            try:
                lines = status.read_text().splitlines()
            except FileNotFoundError:
                lines = []
            if len(lines) > _READY_LINE and lines[_READY_LINE].strip() == "ready":
                self._forget_shared_memory(lines[_READY_LINE - 1])
                return
            time.sleep(_POLL_S)

    def _forget_shared_memory(self, line: str) -> None:
        """Have the kernel free the server's System V segment with its last process, even if that is killed."""
        number = line.split()[-1:]
        if number and shutil.which("ipcrm"):
            subprocess.run(as_server(["ipcrm", "-m", *number]), capture_output=True, check=False)

    def _stop(self, process: "subprocess.Popen[bytes]") -> None:
        if process.poll() is None:
            self._kill()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _kill(self) -> None:
        """Have the server end at once; nothing of it is needed any more."""
        self._signal(signal.SIGQUIT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        try:
            self._process.send_signal(number)
        except PermissionError:
            mode = "immediate" if number == signal.SIGQUIT else "fast"
            subprocess.run(
                as_server([self._tools.program("pg_ctl"), "-D", str(self.data), "-m", mode, "-W", "stop"]),
                capture_output=True,
                check=False,
            )
