"""`rota import`: makes tasks from the files of other schedulers."""

import os
import re
from pathlib import Path
from typing import Final

import click
import yaml

from node.cli.crontab import tasks_of_crontab
from node.cli.text import input_text, say, source_name
from tasks.definition.cron import check_timezone

_ZONES: Final = re.compile(r".*/zoneinfo/(?:posix/|right/)?(.+)$")


@click.group("import")
def import_command() -> None:
    """Turn the jobs of another scheduler into tasks for `rota apply`."""


@import_command.command("crontab")
@click.argument("file", default="-")
@click.option("--system", is_flag=True, help="The lines name a user, as in /etc/crontab and /etc/cron.d.")
@click.option("--timezone", help="The time zone of the crontab's machine; that of this machine unless given.")
@click.option(
    "--run-as",
    metavar="USERS",
    envvar="ROTA_RUN_AS",
    default="",
    help="With --system: the users that members allow, separated by commas, as in their ROTA_RUN_AS; that of this "
    "shell unless given. The tasks of other users are disabled.",
)
@click.option("--node", help="Bind the tasks to this node, which has the files that they work on.")
def crontab_command(file: str, system: bool, timezone: str | None, run_as: str, node: str | None) -> None:
    """Print the tasks of a crontab (- or none: standard input) as YAML, for `rota apply -f -`.

    A line that cannot be a task is left out, and reported on standard error. A task makes one attempt, as cron does;
    unlike under cron, a run is skipped while the previous run works, and a missed run is made up for. A task keeps its
    name when other lines are changed; with --system it runs as the user that its line names.
    """
    # Imported here, because settings take as long to import as everything else that a command needs.
    from node.settings.values import parse_users

    zone = timezone or machine_timezone()
    try:
        check_timezone(zone)
    except ValueError as error:
        raise click.UsageError(f"--timezone: {error}") from None
    try:
        users = parse_users(run_as)
    except ValueError as error:
        raise click.UsageError(f"--run-as: {error}") from None
    text = input_text(file)
    imported = tasks_of_crontab(text, timezone=zone, system=system, node=node, run_as=users)
    lines = text.splitlines()
    for number, note in imported.notes:
        say(f"{source_name(file)}, line {number}: {note}: {lines[number - 1].strip()}", err=True)
    if not imported.tasks:
        raise click.UsageError(f"{source_name(file)} has no line that can be a task")
    click.echo(yaml.safe_dump_all(imported.tasks, sort_keys=False, allow_unicode=True, width=120), nl=False)
    if node is None:
        say("rota: any node that runs commands may own these tasks; --node NAME binds them to one", err=True)
    if any("cwd" not in task["params"] for task in imported.tasks):
        say(
            "rota: these tasks begin in an empty folder, not in a user's home folder; params.cwd sets another", err=True
        )


def machine_timezone() -> str:
    """Return the time zone of this machine, from TZ, /etc/timezone or /etc/localtime; UTC if none of them names it."""
    if named := os.environ.get("TZ", "").removeprefix(":"):
        return named
    try:
        if named := Path("/etc/timezone").read_text().strip():
            return named
    except OSError:
        pass  # not a Debian system
    try:
        found = _ZONES.match(str(Path("/etc/localtime").readlink()))
    except OSError:
        return "UTC"
    return "UTC" if found is None else found[1]
