"""Restores databases into a MariaDB server that runs, by the client `mariadb`.

MariaDB has no transactions over tables' definitions. So a database that the server does not have is created, and is
dropped again if the restore fails. One that it has is replaced only with `overwrite`, after all of its backup was read
and found good; if the server then refuses the new content, the old one is gone.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tasks.backup.archive import TargetExists
from tasks.backup.manifest import FileEntry
from tasks.backup.objects import StoredObjects
from tasks.backup.sources.mariadb.accounts import MariadbAccount, accounts_in, statements_for
from tasks.backup.sources.mariadb.dumped import ALL, USERS, DumpReader, database_in
from tasks.backup.sources.mariadb.server import (
    NO_FILES,
    MariadbFailed,
    MariadbServer,
    connected,
    quoted_name,
    quoted_text,
    server_facts,
)
from tasks.backup.sources.source import OVER_SOURCE, RestoreTarget
from tasks.source_identity import differing

_CLIENT = *NO_FILES, "--batch", "--binary-mode", "--comments", "--max-allowed-packet=1G"
"""In the binary mode the client runs no command of its own, such as a shell, whatever a dump holds, and keeps the line
ends of routines. `--comments` keeps the comments in them."""

_CONTENT = """SELECT table_name FROM information_schema.tables WHERE table_schema = {0} UNION ALL
SELECT routine_name FROM information_schema.routines WHERE routine_schema = {0} UNION ALL
SELECT event_name FROM information_schema.events WHERE event_schema = {0} LIMIT 1"""


def restore_databases(stored: StoredObjects, target: RestoreTarget, scratch: Path) -> list[str]:
    """Restore into the server at the URL of `target`: all databases, or the one that the target or its URL names.

    Returns remarks. Raises `TargetExists`, `Damaged`, `MariadbFailed` and `NoMariadbProgram`.
    """
    password = os.environ.get("MYSQL_PWD") if target.password is None else target.password
    with connected(target.name, password, scratch) as server:
        into = server.named.database
        if into or target.parts.database:
            entry, name = _chosen(stored, target.parts.database or into)
            _put(stored, server, [_Wanted(entry, name, into or name)], target)
            return []
        single = [(entry, database_in(entry.plain_name)) for entry in stored.manifest.files]
        wanted = [_Wanted(entry, name, name) for entry, name in single if name is not None]
        _put(stored, server, wanted, target)
        others = {entry.plain_name: entry for entry in stored.manifest.files}
        if ALL in others:
            _put_all(stored, server, others[ALL], target)
        return _users(stored, server, others[USERS]) if USERS in others else []


class _Wanted(NamedTuple):
    """A database to restore: its object, its name in the backup, and the name that it gets."""

    entry: FileEntry
    name: str
    into: str


def _chosen(stored: StoredObjects, wanted: str) -> tuple[FileEntry, str]:
    """Return the object of the database `wanted`, or the only one, and the database's name. Raises `MariadbFailed`."""
    found = {name: entry for entry in stored.manifest.files if (name := database_in(entry.plain_name)) is not None}
    if wanted in found:
        return found[wanted], wanted
    if len(found) == 1:
        [(name, entry)] = found.items()
        return entry, name
    if not found:
        raise MariadbFailed(
            f"this backup has all databases as of one moment in {ALL}, which is restored as a whole: give the URL of a "
            "server without a database"
        )
    raise MariadbFailed(
        f"this backup has no database {wanted}, but {', '.join(sorted(found))}: name one by --database; the URL's is "
        "the name that it gets"
    )


def _put(stored: StoredObjects, server: MariadbServer, wanted: Sequence[_Wanted], target: RestoreTarget) -> None:
    """Restore databases, each by its own object."""
    names = [one.name for one in wanted]
    there = _refuse_full(stored, server, [one.into for one in wanted], names, target)
    stored.expect(entry for one in wanted for entry in [one.entry] * (2 if one.into in there else 1))
    with _dropped_if_it_fails(server) as begun:
        for one in wanted:
            own_name = one.into == one.name
            if one.into in there:
                for _ in DumpReader(stored.content(one.entry), one.entry.name).chunks(own_name=own_name):
                    pass
                server.ask(f"DROP DATABASE {quoted_name(one.into)}")
            server.ask(f"CREATE DATABASE {quoted_name(one.into)}")
            begun.append(one.into)
            reader = DumpReader(stored.content(one.entry), one.entry.name)
            _feed(server, reader.chunks(own_name=own_name), one.into)
            if one.into in there:
                begun.remove(one.into)  # its old content is gone, so the new one stays if another database fails


def _put_all(stored: StoredObjects, server: MariadbServer, entry: FileEntry, target: RestoreTarget) -> None:
    """Restore the object of all databases, which creates them by itself."""
    names = DumpReader(stored.content(entry), entry.name).databases()
    there = _refuse_full(stored, server, names, names, target)
    stored.expect([entry] * (2 if there else 1))
    if there:
        for _ in DumpReader(stored.content(entry), entry.name).chunks():
            pass
    with _dropped_if_it_fails(server) as begun:
        for name in there:
            server.ask(f"DROP DATABASE {quoted_name(name)}")
        begun.extend(names)
        _feed(server, DumpReader(stored.content(entry), entry.name).chunks())


def _refuse_full(
    stored: StoredObjects, server: MariadbServer, names: Sequence[str], dumped: Sequence[str], target: RestoreTarget
) -> set[str]:
    """Return those of the databases `names` that the server has.

    Raises `TargetExists` if one of them has content that must not be replaced: any without `overwrite`, and that of
    the databases `dumped` on the server that was backed up without `over_source`.
    """
    listed = {name for (name,) in server.ask("SHOW DATABASES")}
    there = [name for name in names if name in listed]
    full = [name for name in there if server.ask(_CONTENT.format(quoted_text(name)))]
    own = [name for name in full if name in dumped]
    if own and not target.over_source and _is_source(stored, server):
        raise TargetExists(
            f"the server at {server.named.address} is the one that was backed up, with {', '.join(own)}",
            "name another server, or another name for the database in the URL",
            OVER_SOURCE,
        )
    if full and not target.overwrite:
        raise TargetExists(
            f"the server at {server.named.address} has content in {', '.join(full)}",
            "name another server, or another name for the database in the URL",
        )
    return set(there)


def _is_source(stored: StoredObjects, server: MariadbServer) -> bool:
    was, now = stored.manifest.identity or {}, server_facts(server)
    return bool(was.keys() & now.keys()) and not differing(was, now)


@contextmanager
def _dropped_if_it_fails(server: MariadbServer) -> Iterator[list[str]]:
    """Yield a list in which the block notes the databases that it begins. If it raises, they are dropped."""
    begun: list[str] = []
    try:
        yield begun
    except BaseException:
        for name in begun:
            server.ask(f"DROP DATABASE IF EXISTS {quoted_name(name)}")
        raise


def _feed(server: MariadbServer, chunks: Iterable[bytes], database: str = "") -> None:
    """Let the client run statements, in a database if one is named. Raises `MariadbFailed`."""
    argv = server.argv(server.tools.client, *_CLIENT, *([f"--database={database}"] if database else []))
    with server.running(argv, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                view = view[process.stdin.write(view) :]


def _users(stored: StoredObjects, server: MariadbServer, entry: FileEntry) -> list[str]:
    """Create the accounts and roles that the server lacks, with their grants. Returns a remark on the others."""
    dump = b"".join(DumpReader(stored.content(entry), entry.name).chunks()).decode(errors="surrogateescape")
    there = {MariadbAccount(user, host) for user, host in server.ask("SELECT user, host FROM mysql.user")}
    wanted = accounts_in(dump)
    _feed(server, [statements_for(dump, wanted - there).encode(errors="surrogateescape")])
    kept = ", ".join(sorted(map(str, wanted & there)))
    return [f"these accounts exist on the server, and keep their passwords and grants: {kept}"] if kept else []
