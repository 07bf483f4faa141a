"""A MariaDB server, and how its programs reach it: by an option file that only this user can read.

The programs read that file only, neither the machine's option files nor those of the node's user, because those change
what a dump contains. The account's password is in it, so that no command line and no environment has it.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tasks.access import Access
from tasks.backup.sources.mariadb.url import MariadbUrl, parse_mariadb
from tasks.backup.sources.program import ProgramFailed, beside_pipe
from tasks.errors import Away, Failed
from tasks.needs import Tool

_PAIRS: Final = (("mariadb-dump", "mariadb"), ("mysqldump", "mysql"))
"""The names of the programs, and the older ones."""

_ESCAPED: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_TEXT: Final = re.compile(r"\\(.)", re.DOTALL)
_MEANT: Final = {"n": "\n", "t": "\t", "0": "\0"}
_CONNECT_S: Final = 30
_NO_CONNECTION: Final = re.compile(r"^ERROR (2002|2003|2005|2006|2013|1053) ", re.MULTILINE)
"""Nobody answers, the connection is lost, or the server is shut down (mariadb.com/kb, "MariaDB error codes")."""

NO_FILES: Final = ("--local-infile=0",)
"""The client sends no file of this machine, whatever a server or a dump asks for (LOAD DATA LOCAL)."""

_SERVER: Final = """SET time_zone = '+00:00'; SELECT create_time FROM information_schema.tables
WHERE table_schema = 'mysql' AND table_name = 'global_priv' AND create_time IS NOT NULL"""
"""When the server's table of accounts was made: the time is in the table's file, and neither an upgrade nor a copy of
the files changes it. A server has no other lasting identifier: `server_uid` is that of the machine's network card."""


class NoMariadbProgram(Failed):
    """MariaDB's programs mariadb-dump and mariadb are not installed on this machine."""


class MariadbFailed(Failed):
    """One of MariaDB's programs failed, or the server refused. The message contains the program's output."""


class MariadbUnreachable(MariadbFailed, Away):
    """The server does not answer, or has ended the connection."""


class MariadbTools(NamedTuple):
    """MariaDB's programs."""

    #: The path of mariadb-dump.
    dump: str
    #: The path of mariadb, the client.
    client: str


def _found(environ: Mapping[str, str]) -> MariadbTools | None:
    path = environ.get("PATH", os.defpath)
    for dump, client in _PAIRS:
        paths = shutil.which(dump, path=path), shutil.which(client, path=path)
        if paths[0] and paths[1]:
            return MariadbTools(paths[0], paths[1])
    return None


def mariadb_programs(environ: Mapping[str, str], access: Access) -> Iterator[Tool]:
    """MariaDB's programs on the PATH (`tasks.needs.Tools`)."""
    for program in _found(environ) or ():
        yield Tool(program, "run")


def installed_mariadb() -> MariadbTools:
    """Return MariaDB's programs on the PATH. Raises `NoMariadbProgram`, also for those of MySQL."""
    found = _found(os.environ)
    if found is None:
        raise NoMariadbProgram("mariadb-dump and mariadb are not on the PATH: install the package mariadb-client")
    return found


@dataclass(frozen=True)
class MariadbServer:
    """A server that the programs can reach while `connected` lasts."""

    named: MariadbUrl
    tools: MariadbTools
    #: The programs' option file.
    options: Path
    #: A folder for the programs' messages.
    scratch: Path

    def argv(self, program: str, *more: str) -> list[str]:
        """Return the command line of a program that connects to the server."""
        return [program, f"--defaults-file={self.options}", "--default-character-set=utf8mb4", *more]

    def ask(self, query: str) -> list[tuple[str, ...]]:
        """Return the rows of a query, as text. NULL is the text NULL.

        Raises `MariadbFailed`, and `MariadbUnreachable` if nobody answers.
        """
        argv = self.argv(self.tools.client, *NO_FILES, "--batch", "--skip-column-names")
        argv.append(f"--connect-timeout={_CONNECT_S}")
        done = subprocess.run([*argv, "-e", query], capture_output=True, env=client_environment(), check=False)
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()[-2000:]
            raise (MariadbUnreachable if _NO_CONNECTION.search(said) else MariadbFailed)(f"mariadb: {said}")
        lines = done.stdout.decode(errors="backslashreplace").split("\n")[:-1]
        return [tuple(_plain(value) for value in line.split("\t")) for line in lines]

    @contextmanager
    def running(
        self, argv: list[str], *, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.DEVNULL
    ) -> "Iterator[subprocess.Popen[bytes]]":
        """Run a program during the block, as `beside_pipe` does. Raises `MariadbFailed` if it fails."""
        try:
            with beside_pipe(argv, self.scratch, client_environment(), stdin=stdin, stdout=stdout) as process:
                yield process
        except ProgramFailed as error:
            raise MariadbFailed(str(error)) from None


@contextmanager
def connected(url: str, password: str | None, scratch: Path) -> Iterator[MariadbServer]:
    """Have the option file for a server during the block. Raises `NoMariadbProgram`."""
    named, tools = parse_mariadb(url), installed_mariadb()
    descriptor, path = tempfile.mkstemp(prefix="mariadb-", suffix=".cnf", dir=scratch)  # which only this user can read
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(option_file(named, password))
        yield MariadbServer(named, tools, Path(path), scratch)
    finally:
        Path(path).unlink()


def server_facts(server: MariadbServer) -> dict[str, str]:
    """Return the identity facts of a server. Raises `MariadbFailed`.

    An account that may not see the server's own tables gets the names of its machine and data folder instead.
    """
    found = server.ask(_SERVER)
    if found:
        return {"server": f"set up at {found[0][0]} UTC"}
    [(host, folder)] = server.ask("SELECT @@hostname, @@datadir")
    return {"host": host, "data_folder": folder}


def option_file(named: MariadbUrl, password: str | None) -> str:
    r"""Return the text of the programs' option file.

    >>> print(option_file(parse_mariadb("mysql://a@db/"), 'p"#\\'))
    [client]
    user="a"
    password="p\"#\\"
    protocol="tcp"
    host="db"
    port="3306"
    <BLANKLINE>
    """
    values = {"user": named.user} | ({} if password is None else {"password": password})
    if named.socket:
        values |= {"protocol": "socket", "socket": named.socket}
    else:
        values |= {"protocol": "tcp", "host": named.host, "port": str(named.port)}
    values |= {"ssl-ca": named.ca} if named.ca else {}
    lines = [f'{name}="{"".join(_ESCAPED.get(each, each) for each in value)}"' for name, value in values.items()]
    lines += ["ssl-verify-server-cert"] if named.tls == "verified" else []
    return "\n".join(["[client]", *lines, ""])


def client_environment() -> dict[str, str]:
    """Return the variables of MariaDB's programs: those of this process, without those that say where to connect."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("MYSQL_", "MARIADB_"))}


def _plain(escaped: str) -> str:
    return _TEXT.sub(lambda match: _MEANT.get(match[1], match[1]), escaped)


def quoted_name(name: str) -> str:
    """Return a name as SQL writes it.

    >>> quoted_name("a`b")
    '`a``b`'
    """
    return f"`{name.replace('`', '``')}`"


def quoted_text(text: str) -> str:
    r"""Return a text as SQL writes it.

    >>> quoted_text("it's \\")
    "'it''s \\\\'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
