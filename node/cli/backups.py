"""Commands for backups. They run in this process, and may use only the secrets of this user that the
command line names. Given a URL, they need no node.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click
from pydantic import ValidationError

from node.cli.api import Api, ago, api_command
from node.cli.backup_access import (
    NamedByCaller,
    errors_as_sentences,
    naming_what_may_be_used,
    passphrase_in,
    task_places,
)
from node.cli.restores import manifest_shown, restore_command, verify_command
from node.cli.text import say
from node.cli.wal import last_moment
from node.client import path
from tasks.backup.encryption import new_identity
from tasks.backup.finding import FoundBackups, TaskPlace, find_backups
from tasks.backup.keep import KeepRules, why_kept
from tasks.backup.manifest import Manifest, survey_url
from tasks.backup.params import backup_locations, keep_of
from tasks.backup.proofs import Proof, last_proven, read_proofs
from tasks.backup.retention import name_of
from tasks.places.place import Place
from tasks.wal.report import ArchiveReport, describe_archives


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
@click.option("--wal", metavar="WHAT", help="Of a server: the task of kind wal, or its archive; adds which moments.")
@naming_what_may_be_used
@api_command
def list_backups_command(api: Api, what: str, wal: str | None, named: NamedByCaller) -> None:
    """List the complete backups, newest first, and when a drill last proved that each one restores.

    A backup is restored as of the time at which it was made; with --wal, that of a server to each moment that is shown.
    What cannot be read is reported on standard error.
    """
    reports: list[ArchiveReport] = []
    with errors_as_sentences():
        places = task_places(api, what, named)
        found = find_backups(places)
        drilled = _drilled(places, found)
        if wal is not None:
            reports = describe_archives(*task_places(api, wal, named, kind="wal")[0], found.complete)
    for why in found.problems:
        say(f"not listed: {why}", err=True)
    for name in found.unfinished:
        say(f"not listed: {name} is not complete", err=True)
    at = {name: found.places(name) for name in found.at}
    moments = {
        backup.url: f"{backup.since:%Y-%m-%d %H:%M:%S%z} to {last_moment(backup)}"
        for report in reports
        for backup in report.backups
    }
    optional = {"RESTORES TO": wal is not None, "ALSO AT": len(places) > 1}
    api.show(
        [
            {
                **manifest_shown(manifest),
                "places": at[manifest.name],
                "proof": _proof_shown(manifest, drilled),
                "moments": moments.get(manifest.url),
            }
            for manifest in found.complete
        ],
        lambda: api.table(
            (
                "BACKUP",
                "MADE",
                "ON",
                "OF",
                "SIZE",
                "STORED",
                "NEEDS",
                "PROVEN",
                *(n for n, is_on in optional.items() if is_on),
            ),
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
                    *[moments.get(manifest.url, "as made")] * optional["RESTORES TO"],
                    *[" ".join(at[manifest.name][1:])] * optional["ALSO AT"],
                )
                for manifest in found.complete
            ),
            "there is no backup",
        ),
    )


def _drilled(places: Sequence[TaskPlace], found: FoundBackups) -> Mapping[str, Proof]:
    """Return the newest proof of each backup, by its folder's name. A place is a task's folder, or one backup's."""
    newest: dict[str, Proof] = {}
    readable = {each.place.url for here in found.at.values() for each in here}
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


backup_command.add_command(verify_command)
backup_command.add_command(restore_command)
