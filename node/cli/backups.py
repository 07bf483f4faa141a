"""Commands for backups: list, verify, restore. They run in this process, and may use only the secrets of this user that
the command line names. Given a URL, they need no node.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
from pydantic import BaseModel, ValidationError
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from node.cli.api import Api, ago, api_command
from node.cli.text import say
from node.client import ApiProblem, Unreachable, path
from tasks.access import (
    Access,
    AccessRefused,
    addresses,
    check_address,
    check_options,
    check_protocol,
    parse_hosts,
)
from tasks.backup.archive import Damaged, TargetExists
from tasks.backup.encryption import BackupKeys, BadIdentity, Identities, NoIdentity, new_identity
from tasks.backup.finding import FoundBackups, TaskPlace, find_backups
from tasks.backup.keep import KeepRules, why_kept
from tasks.backup.manifest import Manifest, NoBackup, survey_url
from tasks.backup.objects import needed_by_restore
from tasks.backup.params import BackupLocation, backup_location, backup_locations, keep_of
from tasks.backup.proofs import Proof, last_proven, read_proofs
from tasks.backup.restore import BadTarget, restore_backup
from tasks.backup.retention import name_of
from tasks.backup.sources.data_folder import NoRoomToRestore, NoTablespacePath
from tasks.backup.sources.mariadb.server import MariadbFailed, NoMariadbProgram
from tasks.backup.sources.postgres_restore import MissingRoles
from tasks.backup.sources.postgres_tools import NoTool, PostgresFailed
from tasks.backup.sources.source import NoSuchPart, RestoreParts
from tasks.backup.verify import verify
from tasks.errors import MissingSecret
from tasks.places.place import BadDestination, Place, local_path, resolved
from tasks.postgres.wal_position import parse_lsn
from tasks.secret import Reference, SecretFile, references_in, resolve
from tasks.wal.restore import Moment, NotRestorable, restore_server, start_hint

_REFUSALS: Final = (
    NoBackup,
    BadTarget,
    BadDestination,
    TargetExists,
    Damaged,
    NoTool,
    PostgresFailed,
    NoMariadbProgram,
    MariadbFailed,
    MissingSecret,
    MissingRoles,
    NoSuchPart,
    NotRestorable,
    NoIdentity,
    BadIdentity,
    NoTablespacePath,
    NoRoomToRestore,
)


@click.group("backup")
def backup_command() -> None:
    """List, verify and restore backups.

    WHAT is the name of a task, the URL of a task's backups (DESTINATION/TASK), or the URL of one backup. A task's
    definition comes from the cluster: the secrets and variables of this machine to which it refers are read only if
    --secret and --env name them, and sent only to hosts that --host names.
    """


@contextmanager
def _errors_as_sentences() -> Iterator[None]:
    """Turn an error of a backup or its storage into a sentence and exit code 1."""
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, ApiProblem, Unreachable):
        raise
    except _REFUSALS as error:
        raise click.ClickException(str(error)) from error
    except Exception as error:
        # fsspec's libraries raise exceptions of many types: no credentials, no such bucket, no permission.
        raise click.ClickException(f"the storage returned an error: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class _Named:
    """What a task's definition, which somebody else may have written, may use of this machine: the caller has named it.

    `secrets` are files and `env` variables, by the names in references to them; `hosts` are the hosts that may hold the
    task's backups, as in ROTA_DESTINATION_HOSTS; `options` are the caller's own options for the URL.
    """

    secrets: Mapping[str, Path]
    env: tuple[str, ...]
    hosts: tuple[str, ...]
    options: Mapping[str, Any]

    def lacks(self, reference: Reference) -> str | None:
        """Return the option that the caller must add to name a reference; None if the reference is named."""
        if isinstance(reference, SecretFile):
            return None if reference.secret in self.secrets else f"--secret {reference.secret}=FILE"
        return None if reference.env in self.env else f"--env {reference.env}"

    def resolve(self, reference: Reference) -> str:
        """Return the value of a named reference. Raises `MissingSecret`."""
        if isinstance(reference, SecretFile):
            file = self.secrets[reference.secret]
            return resolve({"secret": file.name}, file.parent, (), {})
        return resolve(reference, Path(), self.env, os.environ)


def _url_and_options(api: Api, what: str, named: _Named, kind: str = "backup") -> tuple[str, dict[str, Any]]:
    """Return the URL that WHAT stands for, and fsspec's options for it."""
    if "/" in what:
        return what, dict(named.options)
    task = api.client.get(path("v1", "tasks", what))
    if task["kind"] != kind:
        raise click.UsageError(f"{what} is a task of kind {task['kind']}, not of kind {kind}")
    return _place(api, what, backup_location(task["params"], what), named)


def _place(api: Api, what: str, location: BackupLocation, named: _Named) -> TaskPlace:
    """Return the folder of the task WHAT at one of its destinations, with secrets resolved."""
    options = _resolved_if_named(what, location.url, location.options, named)
    folder = local_path(location.url)
    if folder is not None and not Path(folder).exists():
        _refuse_if_elsewhere(api, what, location.url)
    return TaskPlace(location.url, {**options, **named.options})


def _places(api: Api, what: str, named: _Named, only: str | None = None) -> list[TaskPlace]:
    """Return what WHAT stands for at each destination that can be read here; `only`: at the destination with this URL.

    Reports the others on standard error. Raises the first one's error if none is left.
    """
    if "/" in what:
        return [TaskPlace(*_url_and_options(api, what, named))]
    task = api.client.get(path("v1", "tasks", what))
    if task["kind"] != "backup":
        raise click.UsageError(f"{what} is a task of kind {task['kind']}, not of kind backup")
    locations = backup_locations(task["params"], what)
    chosen = [one for one in locations if only is None or one.url in {only.rstrip("/"), f"{only.rstrip('/')}/{what}"}]
    if not chosen:
        where = ", ".join(one.url.rpartition("/")[0] for one in locations)
        raise click.UsageError(f"--from {only}: {what} has no such destination (it has: {where})")
    found: list[TaskPlace] = []
    errors: list[click.ClickException] = []
    for one in chosen:
        try:
            found.append(_place(api, what, one, named))
        except click.ClickException as error:
            errors.append(error)
    if not found:
        raise errors[0]
    for refusal in errors:
        say(f"skipped a destination: {refusal.format_message()}", err=True)
    return found


def _newest_whole(api: Api, what: str, named: _Named, only: str | None) -> TaskPlace:
    """Return the URL of the newest backup at the first destination that has it whole, and the options for it."""
    places = _places(api, what, named, only)
    if len(places) == 1:
        return places[0]
    found = find_backups(places)
    for why in found.problems:
        say(f"skipped: {why}", err=True)
    manifest, place = found.newest_whole()
    return TaskPlace(manifest.url, place.options)


def _resolved_if_named(task: str, url: str, options: Mapping[str, Any], named: _Named) -> dict[str, Any]:
    """Return the options of a task's definition, with secrets resolved.

    Raises `click.UsageError` unless the caller has named each secret in the options, and each address to connect to.
    """
    missing = [how for reference in references_in(options) if (how := named.lacks(reference))]
    try:
        remote = check_protocol(url)
        check_options(url, options)
        if missing:  # find the addresses that are known without the secrets
            known = {name: None if isinstance(value, BaseModel) else value for name, value in options.items()}
        else:
            known = resolved(options, named.resolve)
        where = addresses(url, known) if remote else ()
    except ValueError as error:
        raise click.UsageError(
            f"the definition of {task} cannot be used here: {error}; give the backups' URL"
        ) from None
    for address in where:
        try:
            check_address(Access(destination_hosts=named.hosts), "destination", address, url)
        except AccessRefused:
            missing.insert(0, f"--host {address}")
    if missing:
        at = f"{url}, on {', '.join(where)}" if where else url
        raise click.UsageError(
            f"the definition of {task} comes from the cluster, and says that its backups are at {at}. Nothing was sent "
            f"there from this machine. To allow this, add: {' '.join(dict.fromkeys(missing))}"
        )
    return known


def _refuse_if_elsewhere(api: Api, task: str, url: str) -> None:
    """Raise an error if a node has made backups of `task` in a folder that this machine does not have."""
    for run in api.client.get("/v1/runs", task=task, state="succeeded", limit=1)["items"]:
        made = (run["result"] or {}).get("url", url)
        raise click.ClickException(
            f"{url} does not exist on this machine, but {run['node']} has written {made} ({ago(run['finished_at'])}): "
            f"the destination is on the disk of that node. Run this command on {run['node']}, or mount the folder here"
        )


def _options(text: str | None) -> dict[str, Any]:
    try:
        options = json.loads(text) if text else {}
    except ValueError as error:
        raise click.UsageError(f"--options is not JSON: {error}") from error
    if not isinstance(options, dict):
        raise click.UsageError('--options is a JSON object, such as {"endpoint_url": "https://s3.internal"}')
    return options


def _pairs(option: str, example: str, pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, is_pair, value = pair.partition("=")
        if not is_pair or not name or not value:
            raise click.UsageError(f"{option} is NAME=PATH, {example}, not {pair!r}")
        found[name] = value
    return found


def _files(pairs: tuple[str, ...]) -> dict[str, Path]:
    found = _pairs("--secret", "such as s3_key=/run/secrets/s3_key", pairs)
    return {name: Path(file) for name, file in found.items()}


def _hosts(texts: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return tuple(host for text in texts for host in parse_hosts(text))
    except ValueError as error:
        raise click.UsageError(f"--host: {error}") from None


def _what_is_named(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `_Named`, and pass their values to it as the argument `named`."""

    @click.option("--secret", "secrets", multiple=True, metavar="NAME=FILE", help="A file for a task's {secret: NAME}.")
    @click.option("--env", multiple=True, metavar="NAME", help="A variable for a task's {env: NAME}.")
    @click.option("--host", "hosts", multiple=True, metavar="HOST", help="Where a task's backups may be, if remote.")
    @click.option("--options", help="fsspec's options for the URL, as a JSON object.")
    @wraps(command)
    def with_named(
        *args: Any,
        secrets: tuple[str, ...],
        env: tuple[str, ...],
        hosts: tuple[str, ...],
        options: str | None,
        **more: Any,
    ) -> None:
        command(*args, named=_Named(_files(secrets), env, _hosts(hosts), _options(options)), **more)

    return with_named


def _keys_are_given(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that open encrypted backups, and pass their value to it as the argument `keys`."""

    @click.option("--identity", "files", multiple=True, metavar="FILE", help="An identity of age or an SSH key.")
    @click.option("--passphrase-file", metavar="FILE", help="The passphrase that wraps an identity.")
    @wraps(command)
    def with_keys(*args: Any, files: tuple[str, ...], passphrase_file: str | None, **more: Any) -> None:
        command(*args, keys=_backup_keys(files, passphrase_file), **more)

    return with_keys


def _backup_keys(files: tuple[str, ...], passphrase_file: str | None) -> BackupKeys | None:
    """Read the files that the options name; None if they name none. Raises `click.ClickException`."""
    if not files and passphrase_file is None:
        return None
    passphrase = None if passphrase_file is None else _passphrase(passphrase_file)
    try:
        found = [Identities.of_text(Path(file).read_text(), file, passphrase) for file in files]
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"the identity cannot be read: {error}") from None
    except BadIdentity as error:
        raise click.ClickException(str(error)) from None
    return BackupKeys(Identities(tuple(key for one in found for key in one.keys)), passphrase)


def _passphrase(file: str) -> str:
    """Return the first line of a file. Raises `click.ClickException`."""
    try:
        line = Path(file).read_text().partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"the passphrase cannot be read: {error}") from None
    if not line:
        raise click.ClickException(f"{file}: the first line, which is the passphrase, is empty")
    return line


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
    public, text = new_identity(_passphrase(passphrase_file) if passphrase_file is not None else None)
    indented = "".join(f"\n    {line}" for line in text.splitlines())
    api.show(
        {"recipients": [public], "identity": text},
        f"encryption:\n  recipients: [{public}]\n  identity: |{indented}"
        if wrapped
        else f"# public key: {public}\n{text.strip()}",
    )


@backup_command.command("list")
@click.argument("what")
@_what_is_named
@api_command
def list_backups_command(api: Api, what: str, named: _Named) -> None:
    """List the complete backups, newest first, and when a drill last proved that each one restores.

    Backups with unreadable manifests are reported on standard error.
    """
    with _errors_as_sentences():
        places = _places(api, what, named)
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
@_what_is_named
@api_command
def kept_command(api: Api, what: str, keep: str | None, named: _Named) -> None:
    """Show which backups stay at each destination, and why, by the task's `keep` or --keep.

    Nothing is removed: the next run does that.
    """
    rules = _keep_rules(api, what, keep)
    shown: list[tuple[Manifest, list[str]]] = []
    with _errors_as_sentences():
        for url, options in _places(api, what, named):
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
@_what_is_named
@_keys_are_given
@api_command
def verify_command(api: Api, what: str, only: str | None, named: _Named, keys: BackupKeys | None) -> None:
    """Read a whole backup and check it against its manifest. Of several backups, the newest is checked.

    Of several destinations, the first one that has all its files is read, unless --from names one. Of an encrypted
    backup, only the checksums of the stored files are checked unless --identity or --passphrase-file is given.
    """
    with _errors_as_sentences():
        url, resolved_options = _newest_whole(api, what, named, only)
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
@_what_is_named
@_keys_are_given
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
    named: _Named,
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
    spaces = _pairs("--tablespace", "such as history=/mnt/history", tablespaces)
    with _errors_as_sentences():
        if wal is not None:
            url, resolved_options = _places(api, what, named, only)[0]
            log = _url_and_options(api, wal, named, "wal")
            _restore_server(api, url, resolved_options, target, overwrite, moment, log, keys, spaces)
            return
        url, resolved_options = _newest_whole(api, what, named, only)
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
    lines = [
        f"restored {done.manifest.url} to {target} in {done.seconds:.1f} s; the log is archived up to {done.archived}",
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
