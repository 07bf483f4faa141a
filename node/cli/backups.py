"""Commands for backups: list, verify, restore. They run in this process, and may use only the secrets of this user that
the command line names. Given a URL, they need no node.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from pydantic import ValidationError
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from node.cli.api import Api, ago, api_command
from node.cli.backup_access import (
    NamedByCaller,
    errors_as_sentences,
    naming_what_may_be_used,
    newest_whole,
    opening_backups,
    option_pairs,
    passphrase_in,
    task_places,
    url_and_options,
)
from node.cli.text import say
from node.client import path
from tasks.backup.encryption import BackupKeys, new_identity
from tasks.backup.finding import FoundBackups, TaskPlace, find_backups
from tasks.backup.keep import KeepRules, why_kept
from tasks.backup.manifest import Manifest, survey_url
from tasks.backup.objects import needed_by_restore
from tasks.backup.params import backup_locations, keep_of
from tasks.backup.proofs import Proof, last_proven, read_proofs
from tasks.backup.restore import restore_backup
from tasks.backup.retention import name_of
from tasks.backup.sources.source import RestoreParts
from tasks.backup.verify import verify
from tasks.places.place import Place
from tasks.postgres.wal_position import parse_lsn
from tasks.wal.restore import Moment, restore_server, start_hint


@click.group("backup")
def backup_command() -> None:
    """List, verify and restore backups.

    WHAT is the name of a task, the URL of a task's backups (DESTINATION/TASK), or the URL of one backup. A task's
    definition comes from the cluster: the secrets and variables of this machine to which it refers are read only if
    --secret and --env name them, and sent only to hosts that --host names.
    """


@backup_command.command("key")
@click.option("--passphrase-file", metavar="FILE", help="Wrap the identity by the passphrase in this file.")
@api_command
def key_command(api: Api, passphrase_file: str | None) -> None:
    """Make an identity, which decrypts backups, and print it. Needs no node.

    Without a passphrase, an identity file of age is printed: keep it where you restore, and nowhere else. Its public
    key is a recipient for the params of a task. With a passphrase, the params of a task are printed, which contain the
    identity, wrapped: then the passphrase suffices to restore.
    """
    wrapped = passphrase_file is not None
    public, text = new_identity(passphrase_in(passphrase_file) if passphrase_file is not None else None)
    indented = "".join(f"\n    {line}" for line in text.splitlines())
    api.show(
        {"recipients": [public], "identity": text},
        f"encryption:\n  recipients: [{public}]\n  identity: |{indented}"
        if wrapped
        else f"# public key: {public}\n{text.strip()}",
    )


@backup_command.command("list")
@click.argument("what")
@naming_what_may_be_used
@api_command
def list_backups_command(api: Api, what: str, named: NamedByCaller) -> None:
    """List the complete backups, newest first, and when a drill last proved that each one restores.

    Backups with unreadable manifests are reported on standard error.
    """
    with errors_as_sentences():
        places = task_places(api, what, named)
        found = find_backups(places)
        drilled = _drilled(places, found)
    for why in found.problems:
        say(f"not listed: {why}", err=True)
    at = {name: [place.url for place in here] for name, here in found.places.items()}
    api.show(
        [
            {**_shown(manifest), "places": at[name_of(manifest.url)], "proof": _proof_shown(manifest, drilled)}
            for manifest in found.complete
        ],
        lambda: api.table(
            ("BACKUP", "MADE", "ON", "OF", "SIZE", "STORED", "NEEDS", "PROVEN", *["ALSO AT"] * (len(places) > 1)),
            (
                (
                    manifest.url,
                    ago(manifest.created.isoformat()),
                    manifest.node,
                    manifest.source_type,
                    f"{manifest.size_bytes:,}",
                    f"{manifest.stored_bytes:,}",
                    _needs_said(manifest, at),
                    _proof_said(manifest, drilled),
                    *[" ".join(at[name_of(manifest.url)][1:])] * (len(places) > 1),
                )
                for manifest in found.complete
            ),
            "there is no backup",
        ),
    )


def _drilled(places: Sequence[TaskPlace], found: FoundBackups) -> Mapping[str, Proof]:
    """Return the newest proof of each backup, by its folder's name. A place is a task's folder, or one backup's."""
    newest: dict[str, Proof] = {}
    readable = {place.url for here in found.places.values() for place in here}
    for url, options in places:
        if url not in readable:
            continue  # it has no backups, or cannot be read, which is reported
        is_one = [manifest.url for manifest in found.complete] == [url.rstrip("/")]
        proofs = read_proofs(Place(url.rstrip("/").rpartition("/")[0] if is_one else url, options))
        for why in proofs.unreadable:
            say(f"not counted: {why}", err=True)
        for name, proof in proofs.newest().items():
            if name not in newest or newest[name].finished < proof.finished:
                newest[name] = proof
    return newest


def _needs_said(manifest: Manifest, at: Mapping[str, Sequence[str]]) -> str:
    """Say which backups an incremental one needs. `at`: where the backups are, by the names of their folders."""
    folder = manifest.url.rpartition("/")[0]
    lacking = [parent.name for parent in manifest.parents if folder not in at.get(parent.name, ())]
    if lacking and folder in at[manifest.name]:  # else the URL of this backup alone was given
        return f"LACKS {lacking[0]}"
    if not manifest.parents:
        return ""
    between = len(manifest.parents) - 1
    return manifest.parents[0].name + (f" and {between} after it" if between else "")


def _proof_said(manifest: Manifest, drilled: Mapping[str, Proof]) -> str:
    proof = drilled.get(name_of(manifest.url))
    if proof is None:
        return "never"
    on = " on its own member" if proof.same_member else ""
    return f"{ago(proof.finished.isoformat())}{on}" if proof.result == "proven" else f"FAILED: {proof.why[0]}"


def _proof_shown(manifest: Manifest, drilled: Mapping[str, Proof]) -> dict[str, Any] | None:
    proof = drilled.get(name_of(manifest.url))
    return None if proof is None else proof.model_dump(mode="json")


@backup_command.command("kept")
@click.argument("what")
@click.option("--keep", help='Other rules than the task\'s: a number, or a JSON object such as {"daily": 7}.')
@naming_what_may_be_used
@api_command
def kept_command(api: Api, what: str, keep: str | None, named: NamedByCaller) -> None:
    """Show which backups stay at each destination, and why, by the task's `keep` or --keep.

    Nothing is removed: the next run does that.
    """
    rules = _keep_rules(api, what, keep)
    shown: list[tuple[Manifest, list[str]]] = []
    with errors_as_sentences():
        for url, options in task_places(api, what, named):
            found = survey_url(url, options)
            for error in found.unreadable:
                say(f"neither counted nor removed: {error}", err=True)
            own = rules.get(url, rules.get(""))
            why = {backup.url: ["all stay"] for backup in found.complete}
            if own is not None:
                why = why_kept(found.complete, own)
                proven = last_proven(Place(url, options), [name_of(backup.url) for backup in found.complete])
                for backup in found.complete:
                    if name_of(backup.url) == proven:
                        why.setdefault(backup.url, []).append("the last that a drill has proven")
            shown += [(backup, why.get(backup.url, [])) for backup in found.complete]
    api.show(
        [{"url": backup.url, "created": backup.created.isoformat(), "kept": kept} for backup, kept in shown],
        lambda: api.table(
            ("BACKUP", "MADE", "STAYS"),
            (
                (backup.url, ago(backup.created.isoformat()), "; ".join(kept or ["no: it is to go"]))
                for backup, kept in shown
            ),
            "there is no backup",
        ),
    )


def _keep_rules(api: Api, what: str, keep: str | None) -> dict[str, KeepRules | None]:
    """Return the rules that --keep gives ("") or, by the URLs of the task's folders, those of the task's params.

    Raises `click.UsageError`.
    """
    if keep is None and "/" in what:
        raise click.UsageError("a URL says nothing of which backups to keep: give --keep, such as --keep 7")
    try:
        if keep is None:
            params = api.client.get(path("v1", "tasks", what))["params"]
            destinations = [params, *(params.get("copies") or [])]
            urls = [location.url for location in backup_locations(params, what)]
            return {url: keep_of(one) for url, one in zip(urls, destinations, strict=True)}
        return {"": keep_of({"keep": json.loads(keep)})}
    except ValidationError as error:
        told = error.errors()[-1 if (keep or "{").startswith("{") else 0]  # one for a number, one for rules
        raise click.UsageError(f"keep: {told['msg'].removeprefix('Value error, ')}") from None
    except ValueError as error:
        raise click.UsageError(f"--keep is a number or a JSON object: {error}") from None


_FROM: Final = click.option("--from", "only", metavar="URL", help="Of several destinations, only the one at this URL.")


@backup_command.command("verify")
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
        url, resolved_options = newest_whole(api, what, named, only)
        with _progress(api, url, resolved_options) as advance:
            report = verify(url, resolved_options, advance, keys)
    lines = [f"{report.manifest.url}: " + ("good" if report.ok else "DAMAGED")]
    lines += [f"  {problem}" for problem in report.problems] + [f"  note: {remark}" for remark in report.remarks]
    shown = {**_shown(report.manifest), "ok": report.ok, "problems": report.problems, "remarks": report.remarks}
    api.show(shown, "\n".join(lines))
    if not report.ok:
        raise click.exceptions.Exit(1)


@backup_command.command("restore")
@click.argument("what")
@click.argument("target")
@click.option("--overwrite", is_flag=True, help="Replace what TARGET holds.")
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
    --to-lsn says otherwise. Of several destinations, the first one that has all files of the backup is read, unless
    --from names one. An encrypted backup needs --identity or --passphrase-file. A restore of a large folder that was
    interrupted goes on if the same command is given again.
    """
    if wal is not None and inner is not None:
        raise click.UsageError("--path is for folders, --wal for a server")
    moment = _moment(wal, to_time, to_lsn, to_timeline)
    parts = RestoreParts(database=database, table=table, owners=owners, roles=not no_roles, path=inner)
    spaces = option_pairs("--tablespace", "such as history=/mnt/history", tablespaces)
    with errors_as_sentences():
        if wal is not None:
            url, resolved_options = task_places(api, what, named, only)[0]
            log = url_and_options(api, wal, named, "wal")
            _restore_server(api, url, resolved_options, target, overwrite, moment, log, keys, spaces)
            return
        url, resolved_options = newest_whole(api, what, named, only)
        with _progress(api, url, resolved_options) as advance:
            restored = restore_backup(
                url,
                target,
                overwrite,
                resolved_options,
                progress=advance,
                keys=keys,
                parts=parts,
                tablespaces=spaces,
            )
    lines = [f"restored {restored.manifest.url} to {target}: {restored.size_bytes:,} bytes in {restored.seconds:.1f} s"]
    lines += [f"  note: {remark}" for remark in restored.remarks]
    shown = {**_shown(restored.manifest), "target": target, "seconds": restored.seconds, "remarks": restored.remarks}
    api.show(shown, "\n".join(lines))


def _moment(wal: str | None, to_time: str | None, to_lsn: str | None, to_timeline: int | None) -> Moment:
    """Return the moment that the options name. Raises `click.UsageError`."""
    if wal is None and (to_time or to_lsn or to_timeline):
        raise click.UsageError("--to-time, --to-lsn and --to-timeline need --wal, the archive of the log")
    if to_time and to_lsn:
        raise click.UsageError("give --to-time or --to-lsn, not both")
    try:
        time = None if to_time is None else datetime.fromisoformat(to_time)
        lsn = None if to_lsn is None else parse_lsn(to_lsn)
    except ValueError as error:
        raise click.UsageError(f"{error}") from None
    if time is not None and time.tzinfo is None:
        raise click.UsageError(
            f"--to-time {to_time} has no time zone: write {to_time}Z, or with an offset such as +01:00"
        )
    return Moment(time=time, lsn=lsn, timeline=to_timeline)


def _restore_server(
    api: Api,
    url: str,
    options: dict[str, Any],
    target: str,
    overwrite: bool,
    moment: Moment,
    wal: tuple[str, dict[str, Any]],
    keys: BackupKeys | None,
    tablespaces: Mapping[str, str],
) -> None:
    found = survey_url(url, options)
    for why in found.unreadable:
        say(f"skipped: {why}", err=True)
    with _progress(api, url, options) as advance:
        done = restore_server(
            found.complete,
            Path(target),
            moment,
            wal[0],
            overwrite=overwrite,
            options=options,
            wal_options=wal[1],
            progress=advance,
            keys=keys,
            tablespaces=tablespaces,
        )
    at = "" if done.archived_at is None else f", at {done.archived_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    lines = [
        f"restored {done.manifest.url} to {target} in {done.seconds:.1f} s",
        f"  the log is archived up to {done.archived}{at}",
        f"  it recovers to {moment} when it starts: {start_hint(target)}",
    ]
    shown = {**_shown(done.manifest), "target": target, "seconds": done.seconds, "archived": done.archived}
    api.show(shown, "\n".join(lines))


@contextmanager
def _progress(api: Api, url: str, options: Mapping[str, Any]) -> Iterator[Any]:
    found = survey_url(url, dict(options))
    for why in found.unreadable:
        say(f"skipped: {why}", err=True)
    total = sum(each.size_bytes for each in needed_by_restore(found.newest(url), dict(options)))
    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    hidden = api.as_json or not api.console.is_terminal
    with Progress(*columns, console=api.console, disable=hidden, transient=True) as progress:
        bar = progress.add_task(url.rpartition("/")[2], total=total)
        yield lambda done_bytes: progress.update(bar, completed=done_bytes)


def _shown(manifest: Manifest) -> dict[str, Any]:
    return {"url": manifest.url, **manifest.model_dump(mode="json")}
