"""Commands for archives of a server's log: show, verify. They run in this process, as those for backups do."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from node.cli.api import Api, ago, api_command
from node.cli.backup_access import (
    NamedByCaller,
    errors_as_sentences,
    naming_what_may_be_used,
    opening_backups,
    task_places,
)
from node.client import path
from tasks.backup.encryption import BackupKeys
from tasks.backup.finding import find_backups
from tasks.postgres.wal_position import lsn_text
from tasks.wal.report import ArchiveReport, LogCheck, RestorableBackup, check_archives, describe_archives


@click.group("wal")
def wal_command() -> None:
    """Show and verify archives of a PostgreSQL server's log.

    WHAT is the name of a task of kind wal, or the URL of its archive (DESTINATION/TASK). A task's definition comes from
    the cluster: see `rota backup`.
    """


@wal_command.command("show")
@click.argument("what")
@click.option("--backups", metavar="WHAT", help="Their task or URL; by default the task that WHAT names in `backups`.")
@naming_what_may_be_used
@api_command
def show_wal_command(api: Api, what: str, backups: str | None, named: NamedByCaller) -> None:
    """Show what is archived, by timeline, and to which moments each physical backup can be restored."""
    if backups is None and "/" not in what:
        backups = api.client.get(path("v1", "tasks", what))["params"].get("backups")
    with errors_as_sentences():
        found = () if backups is None else find_backups(task_places(api, backups, named)).complete
        reports = describe_archives(*task_places(api, what, named, kind="wal")[0], found)
    api.show([_shown_report(report) for report in reports], lambda: _print_reports(api, reports))


def _shown_report(report: ArchiveReport) -> dict[str, Any]:
    shown = asdict(report)
    shown["position"] = None if report.position is None else report.position._asdict()
    shown["position_at"] = None if report.position_at is None else report.position_at.isoformat()
    for backup in shown["backups"]:
        backup["since"] = backup["since"].isoformat()
        backup["until"] = None if backup["until"] is None else backup["until"].isoformat()
    return shown


def _print_reports(api: Api, reports: Sequence[ArchiveReport]) -> None:
    for report in reports:
        _print_report(api, report)


def _print_report(api: Api, report: ArchiveReport) -> None:
    at = "" if report.position_at is None else f", {ago(report.position_at.isoformat())}"
    api.fields(
        {
            "archive": report.url,
            "system": report.system,
            "cluster": report.cluster or None,
            "archived up to": "nothing" if report.position is None else f"{report.position}{at}",
        }
    )
    api.table(
        ("TIMELINE", "FROM", "TO", "MISSING"),
        (
            (
                one.timeline,
                lsn_text(one.start),
                lsn_text(one.end),
                ", ".join(f"{lsn_text(first)} to {lsn_text(last)}" for first, last in one.missing) or None,
            )
            for one in report.timelines
        ),
        "no log is archived",
    )
    api.table(
        ("BACKUP", "RESTORABLE FROM", "UP TO"),
        (
            (
                backup.url,
                f"{backup.since:%Y-%m-%d %H:%M:%S%z}",
                last_moment(backup),
            )
            for backup in report.backups
        ),
        "no physical backup of this system was looked for, or found",
    )


def last_moment(backup: RestorableBackup) -> str:
    """Return the latest moment to which a backup can be restored, and why not to a later one, for users."""
    if not backup.why_not:
        return "the latest moment"
    last = f"{backup.until:%Y-%m-%d %H:%M:%S%z}" if backup.until else f"itself, --to-lsn {lsn_text(backup.lsn)}"
    return f"{last}: {backup.why_not}"


@wal_command.command("verify")
@click.argument("what")
@opening_backups
@naming_what_may_be_used
@api_command
def verify_wal_command(api: Api, what: str, named: NamedByCaller, keys: BackupKeys | None) -> None:
    """Read and check all that is archived. Exit code 1 if something is missing or damaged.

    Of encrypted log, only the checksums are checked unless --identity or --passphrase-file is given.
    """
    with errors_as_sentences():
        checks = check_archives(*task_places(api, what, named, kind="wal")[0], keys=keys)
    api.show([{**asdict(check), "ok": not check.problems} for check in checks], "\n".join(map(_check_text, checks)))
    if any(check.problems for check in checks):
        raise click.exceptions.Exit(1)


def _check_text(check: LogCheck) -> str:
    said = "DAMAGED" if check.problems else "good"
    lines = [f"{check.url}: {said}, {check.objects:,} objects with {check.read_bytes:,} bytes of log"]
    return "\n".join([*lines, *(f"  {one}" for one in check.problems), *(f"  note: {one}" for one in check.gaps)])
