"""Runs PostgreSQL's programs on one database: a query, a session that stays open, or a program beside a pipe.

The programs get a password in a file that only this user can read (PGPASSFILE), never on a command line.
"""

import fcntl
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

from tasks.backup.sources.postgres_tools import (
    NoTool,
    PostgresFailed,
    PostgresUnreachable,
    Tools,
    choose,
    installed_tools,
)
from tasks.postgres.url import url_of_database

_END: Final = "rota: end of the answer"
"""The line that ends an answer of a session. A value of psql's unaligned output cannot be this whole line: answers to
scripts of this package are numbers, identifiers of snapshots, and JSON."""

_END_S: Final = 5.0
"""How long psql may take to cancel a query and to end."""

_ENCODING: Final = r"""SELECT pg_catalog.getdatabaseencoding() = 'SQL_ASCII' AS any_bytes \gset
\if :any_bytes
SET client_encoding = 'SQL_ASCII';
\endif
"""
"""Before the first script of a session: a database of this encoding may hold names that are no UTF-8."""

_NO_TEXT: Final = re.compile("[\udc80-\udcff]")
"""A byte that is no UTF-8, as names may have in a database of the encoding SQL_ASCII. Answers are JSON with such a byte
written as a backslash, an x and two digits."""

_PROMPT: Final = re.compile(r"^psql:(?:<stdin>:\d+: )? ?", re.MULTILINE)


_PIPE_BYTES: Final = 1 << 20

_NO_CONNECTION: Final = 2
_PASSING: Final = ("connection to server was lost", "the database system is", "too many clients", "slots are reserved")
"""What is said where a connection has ended, or the server does not take one now, and will."""


@dataclass(frozen=True)
class Database:
    """A database, and how to reach it. `scratch` is for the password file and the programs' messages.

    `bin` is the folder of PostgreSQL's programs; None: ROTA_POSTGRES_BIN, else the PATH and the usual folders.
    """

    url: str
    scratch: Path
    password: str | None = None
    bin: str | None = None

    def _environ(self) -> dict[str, str]:
        environ = dict(os.environ)
        if self.password is not None:
            environ["PGPASSFILE"] = str(_password_file(self.scratch, self.password))
            environ.pop("PGPASSWORD", None)
        return environ

    def _of_psql(self) -> dict[str, str]:
        # pg_dump must not get this variable: its archives are in the encoding of the database.
        return self._environ() | {"PGCLIENTENCODING": "UTF8"}

    def of_name(self, name: str) -> "Database":
        """Return another database of the same server."""
        return replace(self, url=url_of_database(self.url, name))

    def tools(self, at_least: int = 0) -> Tools:
        """Find programs that fit the server and an archive of version `at_least`. Raises `NoTool`, `PostgresFailed`."""
        folder = self.bin or os.environ.get("ROTA_POSTGRES_BIN")
        here = installed_tools(folder, os.environ)
        if not here:
            where = f"in {folder}, which ROTA_POSTGRES_BIN names" if folder else "on this machine"
            raise NoTool(f"pg_dump, pg_restore and psql are not installed {where}")
        return choose(here, max(at_least, int(self.ask(here[0], "SHOW server_version_num")) // 10_000))

    def ask(self, tools: Tools, query: str) -> str:
        """Return the output of psql for `query`. Raises `PostgresFailed`, `PostgresUnreachable` if nobody answers."""
        argv = [*_psql(tools, self.url), "-c", query]
        done = subprocess.run(argv, capture_output=True, text=True, env=self._of_psql(), check=False)
        if done.returncode != 0:
            raise _failure(done.returncode, done.stderr)
        return done.stdout.strip()

    @contextmanager
    def session(self, tools: Tools) -> Iterator["PsqlSession"]:
        """Keep a session open during the block. It is ended by the end of the block, also if the block raises."""
        with tempfile.TemporaryFile(dir=self.scratch) as stderr:
            process = subprocess.Popen(
                _psql(tools, self.url),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=self._of_psql(),
            )
            found = PsqlSession(process, stderr)
            try:
                yield found
            finally:
                _end(process)
                found.wait()

    @contextmanager
    def running(self, argv: list[str], stdin: int, stdout: int) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a program during the block, and wait for its end. It is killed if the block raises.

        Raises `PostgresFailed` if its exit code is not 0.
        """
        with tempfile.TemporaryFile(dir=self.scratch) as stderr:
            process = subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=stderr, env=self._environ())
            _widen(process.stdout)
            try:
                yield process
                if process.stdin is not None:
                    process.stdin.close()
                code = process.wait()
            except BrokenPipeError:
                # The program ended before it had read all its input. Its messages will say why.
                code = process.wait()
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
                for pipe in (process.stdin, process.stdout):
                    _close(pipe)
            if code != 0:
                name = Path(argv[0]).name
                said = _tail(stderr).removeprefix(f"{name}: ")
                raise PostgresFailed(f"{name} ended with exit code {code}: {said}")


class PsqlSession:
    """A session of psql that stays open, so that a transaction lasts over several scripts. For one thread at a time."""

    def __init__(self, process: "subprocess.Popen[bytes]", stderr: IO[bytes]) -> None:
        self._process = process
        self._stderr = stderr
        self._asking = threading.Lock()
        self._first = _ENCODING

    def wait(self) -> None:
        """Wait until no thread reads an answer or an error."""
        with self._asking:
            return

    def ask(self, script: str) -> str:
        """Run a script of psql. Returns its output: a line for each row. Raises `PostgresFailed`."""
        with self._asking:
            return self._answer(script)

    def _answer(self, script: str) -> str:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        lines: list[str] = []
        script, self._first = f"{self._first}{script}", ""
        try:
            stdin.write(f"{script}\n\\echo {_END}\n".encode(errors="surrogateescape"))
            stdin.flush()
            for line in stdout:
                text = line.decode(errors="surrogateescape").removesuffix("\n")
                if text == _END:
                    return "\n".join(lines)
                lines.append(_NO_TEXT.sub(lambda byte: rf"\\x{ord(byte[0]) - 0xDC00:02x}", text))
        except BrokenPipeError:
            # psql has ended before it had read the script. Its messages say why.
            lines.clear()
        self._process.wait()
        raise PostgresFailed(_said_by_psql(_tail(self._stderr)))


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End psql, and with it a query that is running: the server would go on with the query of a psql that is killed."""
    process.send_signal(signal.SIGINT)
    _close(process.stdin)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _close(process.stdout)


def _psql(tools: Tools, url: str) -> list[str]:
    return [tools.program("psql"), "-XAtqw", "-v", "ON_ERROR_STOP=1", "-d", url]


def _failure(code: int, stderr: str) -> PostgresFailed:
    """Return the error for what psql has said. Its exit code is 2 if it had no connection, or lost it."""
    refused = "FATAL" in stderr and not any(passing in stderr for passing in _PASSING)
    return (PostgresUnreachable if code == _NO_CONNECTION and not refused else PostgresFailed)(_said_by_psql(stderr))


def _said_by_psql(stderr: str) -> str:
    return f"psql: {_PROMPT.sub('', stderr.strip()[-2000:])}"


def _widen(pipe: IO[bytes] | None) -> None:
    """Let the program write more ahead, so that it and its reader take turns less often."""
    if pipe is not None:
        # The kernel limits the pages that a user has for pipes. Beyond the limit the pipe stays as it is.
        with suppress(PermissionError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is None:
        return
    try:
        pipe.close()
    except BrokenPipeError:
        # The program has ended and reads no more. Its exit code reports the failure.
        return


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 2000))
    return file.read().decode(errors="replace").strip()


def _password_file(scratch: Path, password: str) -> Path:
    if "\n" in password:
        raise PostgresFailed("the password contains a line break, which a password file cannot hold")
    escaped = password.replace("\\", "\\\\").replace(":", "\\:")
    path = scratch / "pgpass"
    # Replaced as a whole, because several programs may start at once. mkstemp lets only this user read the file.
    descriptor, name = tempfile.mkstemp(dir=scratch, prefix="pgpass-")
    with os.fdopen(descriptor, "w") as file:
        file.write(f"*:*:*:*:{escaped}\n")
    return Path(name).replace(path)
