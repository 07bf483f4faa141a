"""Commands for backups: list, verify, restore. They run in this process with this user's secrets; given a URL, they
need no node.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from node.cli.api import Api, ago, api_command
from node.cli.text import say
from node.client import ApiProblem, Unreachable, path
from tasks.backup.archive import Damaged, TargetExists
from tasks.backup.location import backup_location
from tasks.backup.manifest import Manifest, NoBackup, survey_url
from tasks.backup.restore import BadTarget, restore
from tasks.backup.sources.postgres_tools import NoTool, PostgresFailed
from tasks.backup.verify import verify
from tasks.errors import MissingSecret
from tasks.place import BadDestination, local_path
from tasks.secret import resolve

_REFUSALS: Final = (NoBackup, BadTarget, BadDestination, TargetExists, Damaged, NoTool, PostgresFailed, MissingSecret)


@click.group("backup")
def backup_command() -> None:
    """List, verify and restore backups.

    WHAT is the name of a task, the URL of a task's backups (DESTINATION/TASK), or the URL of one backup. Secrets that
    the task's options refer to are read from ROTA_SECRETS_DIR and from this environment.
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


def _url_and_options(api: Api, what: str, options: str | None) -> tuple[str, dict[str, Any]]:
    """The URL that WHAT stands for, and fsspec's options for it."""
    given: dict[str, Any] = _options(options)
    if "/" in what:
        return what, given
    task = api.client.get(path("v1", "tasks", what))
    if task["kind"] != "backup":
        raise click.UsageError(f"{what} is a task of kind {task['kind']}, not a backup")
    url, kept = backup_location(task["params"], what, _secret)
    folder = local_path(url)
    if folder is not None and not Path(folder).exists():
        _refuse_if_elsewhere(api, what, url)
    return url, kept | given


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


def _secret(reference: Any) -> str:
    folder = Path(os.environ.get("ROTA_SECRETS_DIR", "/run/secrets"))
    return resolve(reference, folder, _AllNames(), os.environ)


class _AllNames(frozenset[str]):
    """Contains every name: callers may use all variables of their own environment."""

    def __contains__(self, name: object) -> bool:
        return True


_options_option = click.option("--options", help="fsspec's options for the URL, as a JSON object.")


@backup_command.command("list")
@click.argument("what")
@_options_option
@api_command
def list_command(api: Api, what: str, options: str | None) -> None:
    """List the complete backups, newest first. Backups with unreadable manifests are reported on standard error."""
    with _errors_as_sentences():
        found = survey_url(*_url_and_options(api, what, options))
    for why in found.unreadable:
        say(f"not listed: {why}", err=True)
    api.show(
        [_shown(manifest) for manifest in found.complete],
        lambda: api.table(
            ("BACKUP", "MADE", "ON", "OF", "SIZE", "STORED"),
            (
                (
                    manifest.url,
                    ago(manifest.created.isoformat()),
                    manifest.node,
                    manifest.source_type,
                    f"{manifest.size_bytes:,}",
                    f"{manifest.stored_bytes:,}",
                )
                for manifest in found.complete
            ),
            "there is no backup",
        ),
    )


@backup_command.command("verify")
@click.argument("what")
@_options_option
@api_command
def verify_command(api: Api, what: str, options: str | None) -> None:
    """Read a whole backup and check it against its manifest. Of several backups, the newest is checked."""
    with _errors_as_sentences():
        url, resolved_options = _url_and_options(api, what, options)
        with _progress(api, url, resolved_options) as advance:
            report = verify(url, resolved_options, advance)
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
@_options_option
@api_command
def restore_command(api: Api, what: str, target: str, overwrite: bool, options: str | None) -> None:
    """Restore a backup (of several, the newest) to TARGET: a path, or postgresql://user@host/database.

    The database must exist; its password is taken from PGPASSWORD or ~/.pgpass, as by psql.
    """
    with _errors_as_sentences():
        url, resolved_options = _url_and_options(api, what, options)
        with _progress(api, url, resolved_options) as advance:
            restored = restore(url, target, overwrite, resolved_options, progress=advance)
    lines = [f"restored {restored.manifest.url} to {target}: {restored.size_bytes:,} bytes in {restored.seconds:.1f} s"]
    lines += [f"  note: {remark}" for remark in restored.remarks]
    shown = {**_shown(restored.manifest), "target": target, "seconds": restored.seconds, "remarks": restored.remarks}
    api.show(shown, "\n".join(lines))


@contextmanager
def _progress(api: Api, url: str, options: Mapping[str, Any]) -> Iterator[Any]:
    found = survey_url(url, dict(options))
    for why in found.unreadable:
        say(f"skipped: {why}", err=True)
    total = found.newest(url).size_bytes
    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    hidden = api.as_json or not api.console.is_terminal
    with Progress(*columns, console=api.console, disable=hidden, transient=True) as progress:
        bar = progress.add_task(url.rpartition("/")[2], total=total)
        yield lambda done_bytes: progress.update(bar, completed=done_bytes)


def _shown(manifest: Manifest) -> dict[str, Any]:
    return {"url": manifest.url, **manifest.model_dump(mode="json")}
