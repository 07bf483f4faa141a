"""`rota backup verify` and `rota backup restore`, and how both show their progress."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn, TransferSpeedColumn

from node.cli.api import Api, api_command, progress_text
from node.cli.backup_access import (
    NamedByCaller,
    errors_as_sentences,
    naming_what_may_be_used,
    opening_backups,
    option_pairs,
    task_places,
)
from node.cli.text import say
from tasks.backup.encryption import BackupKeys
from tasks.backup.finding import FoundBackups, find_backups
from tasks.backup.manifest import Manifest
from tasks.backup.objects import RestoreWatch
from tasks.backup.restore import Restored, restore_found
from tasks.backup.sources.source import OVER_SOURCE, RestoreParts, RestoreTarget
from tasks.backup.verify import verify
from tasks.postgres.wal_position import parse_lsn
from tasks.wal.restore import Moment, restore_server, start_hint

_LINE_EVERY_S: Final = 10.0
"""How often the progress is printed where there is no terminal to show it on."""

_FROM: Final = click.option("--from", "only", metavar="URL", help="Of several destinations, only the one at this URL.")


@click.command("verify")
@click.argument("what")
@_FROM
@naming_what_may_be_used
@opening_backups
@api_command
def verify_command(api: Api, what: str, only: str | None, named: NamedByCaller, keys: BackupKeys | None) -> None:
    """Read a whole backup and check it against its manifest. Of several backups, the newest is checked.

    Of several destinations, the first one that has all its files is read, unless --from names one. Of an encrypted
    backup, only the checksums of the stored files are checked unless --identity or --passphrase-file is given.
    """
    with errors_as_sentences():
        found = _found(api, what, named, only)
        places = found.at[found.chosen().name]
        manifest, place = places[0] if len(places) == 1 else next(found.whole(found.chosen(), _warn))
        with _progress(api) as watch:
            report = verify(manifest.url, place.options, watch, keys)
    lines = [f"{report.manifest.url}: " + ("good" if report.ok else "DAMAGED")]
    lines += [f"  {problem}" for problem in report.problems] + [f"  note: {remark}" for remark in report.remarks]
    shown = {"ok": report.ok, "problems": report.problems, "remarks": report.remarks}
    api.show(manifest_shown(report.manifest) | shown, "\n".join(lines))
    if not report.ok:
        raise click.exceptions.Exit(1)


@click.command("restore")
@click.argument("what")
@click.argument("target")
@click.option("--overwrite", is_flag=True, help="Replace what TARGET holds, unless it is what was backed up.")
@click.option(OVER_SOURCE, "over_source", is_flag=True, help="Replace what was backed up by its backup.")
@_FROM
@click.option("--database", metavar="NAME", help="Of a backup of several databases: the one to restore.")
@click.option("--path", "inner", metavar="PATH", help="Of a folder: restore only this file or subfolder of it.")
@click.option("--table", metavar="SCHEMA.NAME", help="Of a PostgreSQL database: only this table and its rows.")
@click.option(
    "--with-owners/--without-owners",
    "owners",
    default=None,
    help="Restore owners and grants. By default only with all databases of a server.",
)
@click.option("--no-roles", is_flag=True, help="With all databases of a server: make none of its roles.")
@click.option("--wal", metavar="WHAT", help="Of a physical backup: the task of kind wal, or the URL of its archive.")
@click.option("--to-time", metavar="TIME", help="With --wal: restore to this time, such as 2026-11-26T14:03:00+01:00.")
@click.option("--to-lsn", metavar="LSN", help="With --wal: restore to this position of the log, such as 16/B374D848.")
@click.option("--to-timeline", type=click.IntRange(1), help="With --wal: follow this timeline, not the newest.")
@click.option(
    "--tablespace",
    "tablespaces",
    multiple=True,
    metavar="NAME=PATH",
    help="Of a physical backup: a new path for a tablespace.",
)
@naming_what_may_be_used
@opening_backups
@api_command
def restore_command(
    api: Api,
    what: str,
    target: str,
    overwrite: bool,
    over_source: bool,
    only: str | None,
    database: str | None,
    inner: str | None,
    table: str | None,
    owners: bool | None,
    no_roles: bool,
    wal: str | None,
    to_time: str | None,
    to_lsn: str | None,
    to_timeline: int | None,
    tablespaces: tuple[str, ...],
    named: NamedByCaller,
    keys: BackupKeys | None,
) -> None:
    """Restore a backup (of several, the newest) to TARGET: a path, postgresql://user@host/database, or mysql://user@host/.

    The database of PostgreSQL must exist; its password is taken from PGPASSWORD or ~/.pgpass, as by psql. Of a backup
    of several databases the server of TARGET gets all, and roles that it lacks; with --database the database of TARGET
    gets one of them. A server of MariaDB gets all databases of the backup, or with mysql://user@host/NEW one of them
    as NEW; its password is taken from MYSQL_PWD.

    With --wal, TARGET becomes a data folder that `pg_ctl start` recovers to a moment: the latest, unless --to-time or
    --to-lsn says otherwise. Of several destinations, the first one that has all files of the backup is read, and the
    next one if it fails, unless --from names one. An encrypted backup needs --identity or --passphrase-file. A restore
    of a large folder that was interrupted goes on if the same command is given again.
    """
    if wal is not None and inner is not None:
        raise click.UsageError("--path is for folders, --wal for a server")
    moment = _moment(wal, to_time, to_lsn, to_timeline)
    parts = RestoreParts(database=database, table=table, owners=owners, roles=not no_roles, path=inner)
    spaces = option_pairs("--tablespace", "such as history=/mnt/history", tablespaces)
    to = RestoreTarget(name=target, overwrite=overwrite, parts=parts, tablespaces=spaces, over_source=over_source)
    with errors_as_sentences():
        found = _found(api, what, named, only)

        def restore(backup: Manifest) -> Restored:
            with _progress(api) as watch:
                return restore_found(found, backup.name, to, keys, watch, _warn)

        if wal is None:
            done = restore(found.chosen())
            lines = [f"restored {done.manifest.url} to {target}: {done.size_bytes:,} bytes in {done.seconds:.1f} s"]
            lines += [f"  note: {remark}" for remark in done.remarks]
            if done.manifest.source_type == "postgres_physical":
                lines.append(f"  start it as the folder's owner, with PostgreSQL's own version: {start_hint(target)}")
            more: dict[str, Any] = {"seconds": done.seconds, "remarks": done.remarks}
            manifest = done.manifest
        else:
            [log] = task_places(api, wal, named, kind="wal")
            server = restore_server(
                found.complete, Path(target), moment, log.url, wal_options=log.options, keys=keys, restore=restore
            )
            manifest = server.manifest
            at = server.archived_at
            reached = "" if at is None else f", at {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
            lines = [
                f"restored {manifest.url} to {target} in {server.seconds:.1f} s",
                f"  the log is archived up to {server.archived}{reached}",
                f"  it recovers to {moment} when it starts: {start_hint(target)}",
            ]
            more = {"seconds": server.seconds, "archived": server.archived}
    api.show({**manifest_shown(manifest), "target": target, **more}, "\n".join(lines))


def _found(api: Api, what: str, named: NamedByCaller, only: str | None) -> FoundBackups:
    """Find the backups that WHAT stands for, and report on standard error what is passed over."""
    found = find_backups(task_places(api, what, named, only))
    for why in found.problems:
        _warn(why)
    for name in found.unfinished:
        _warn(f"{name} is not complete")
    return found


def _warn(why: str) -> None:
    say(f"skipped: {why}", err=True)


def _moment(wal: str | None, to_time: str | None, to_lsn: str | None, to_timeline: int | None) -> Moment:
    """Return the moment that the options name. Raises `click.UsageError`."""
    if wal is None and (to_time or to_lsn or to_timeline):
        raise click.UsageError("--to-time, --to-lsn and --to-timeline need --wal, the archive of the log")
    if to_time and to_lsn:
        raise click.UsageError("give --to-time or --to-lsn, not both")
    try:
        lsn = None if to_lsn is None else parse_lsn(to_lsn)
    except ValueError as error:
        raise click.UsageError(f"--to-lsn: {error}") from None
    return Moment(time=None if to_time is None else _time(to_time), lsn=lsn, timeline=to_timeline)


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--to-time {text!r} is no time: write it as 2026-11-26T14:03:00+01:00") from None
    if time.tzinfo is None:
        here = time.astimezone().isoformat()
        raise click.UsageError(
            f"--to-time {text} has no time zone: by this machine's clock it is {here}; in UTC write {time.isoformat()}Z"
        )
    return time


@contextmanager
def _progress(api: Api) -> Iterator[RestoreWatch]:
    """Show what is done, how much of it and how fast: as a bar on a terminal, else as lines on standard error."""
    if api.as_json or not api.console.is_terminal:
        yield _lines(time.monotonic)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), console=api.console, transient=True) as progress:
        bar = progress.add_task("reading", total=None)
        yield RestoreWatch(
            lambda done_bytes: progress.update(bar, completed=done_bytes),
            lambda what: progress.update(bar, description=what),
            lambda total_bytes: progress.update(bar, total=total_bytes),
        )


def _lines(clock: Callable[[], float]) -> RestoreWatch:
    """Return a watch that prints a line every `_LINE_EVERY_S` seconds, the first one after that time."""
    begun_s = said_s = clock()
    what, total = "reading", None

    def doing(now: str) -> None:
        nonlocal what
        what = now

    def expect(total_bytes: int | None) -> None:
        nonlocal total
        total = total_bytes

    def advance(done_bytes: int) -> None:
        nonlocal said_s
        now_s = clock()
        if now_s - said_s >= _LINE_EVERY_S:
            said_s = now_s
            percent = f"{100 * done_bytes / total:.0f} %, " if total else ""
            rate = progress_text(done_bytes / (now_s - begun_s), None, "bytes")
            say(f"{percent}{progress_text(done_bytes, total, 'bytes')}, {rate}/s: {what}", err=True)

    return RestoreWatch(advance, doing, expect)


def manifest_shown(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest as JSON for users, with its URL."""
    return {"url": manifest.url, **manifest.model_dump(mode="json")}
