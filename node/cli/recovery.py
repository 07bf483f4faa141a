"""Commands for saving, restoring and recovering a cluster (docs/how-to/recover.md)."""

import sqlite3
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from node.cli.api import Api, api_command
from node.cli.saving import ForeignTasks, RefusedChannels, load_missing, read_file, save
from node.cli.text import say
from node.client import ApiProblem, Unreachable
from node.state.saved import BadSave, Saved

FILE = click.Path(dir_okay=False, path_type=Path)


@click.group("cluster")
def cluster_command() -> None:
    """Save and load the cluster's tasks and settings; recover from a lost majority; found without lost members."""


@cluster_command.command("save")
@click.argument("file", type=FILE)
@api_command
def save_command(api: Api, file: Path) -> None:
    """Write the cluster's settings and tasks to FILE, with the tasks' schedules, counters and last outcomes.

    FILE does not contain members, history or active runs.
    """
    try:
        saved = save(api.client, file)
    except (OSError, BadSave) as error:
        raise click.ClickException(f"{file} was not written: {error}") from error
    api.show(saved.head, f"saved to {file}: {_summary(saved)}")


@cluster_command.command("load")
@click.argument("file", type=FILE)
@api_command
def load_command(api: Api, file: Path) -> None:
    """Load the settings and tasks in FILE into a new cluster, one without tasks.

    Tasks keep their placement, so the same members own the same tasks. Schedules continue from where they were saved;
    occurrences that fell due since then are handled by each task's catch-up policy. If loading is interrupted, the same
    command continues it.
    """
    saved = _read(file)
    try:
        loaded = load_missing(api.client, saved)
    except (ForeignTasks, RefusedChannels) as error:
        raise click.ClickException(str(error)) from error
    except (ApiProblem, Unreachable):
        click.echo("rota: loading was interrupted; run the same command again to continue it", err=True)
        raise
    there = len(saved.tasks) - loaded
    before = f" ({there} were loaded before)" if there else ""
    api.show({"loaded": loaded, "there_already": there}, f"loaded {loaded} tasks{before}, from {_summary(saved)}")


@cluster_command.command("show")
@click.argument("file", type=FILE)
def show_saved_command(file: Path) -> None:
    """Check FILE and print what is in it. FILE has one JSON document on each line."""
    saved = _read(file)
    say(_summary(saved))
    for name, value in saved.head["settings"].items():
        say(f"  {name} = {value}")
    for row in saved.tasks:
        last = row["last"]["state"] if row["last"] else "never ran"
        paused = ", paused" if row["paused"] else ""
        say(f"{row['task']['name']}  {row['task']['kind']}, version {row['version']}{paused}, {last}")


@cluster_command.command("found")
@click.option("--without", multiple=True, required=True, metavar="NODE", help="A member that is lost and stays off.")
@api_command
def found_command(api: Api, without: tuple[str, ...]) -> None:
    """Found the cluster without members that are lost. ROTA_URL must be a node that waits for them.

    The other waiting nodes accept this by themselves, unless they reach one of the lost members.
    docs/how-to/recover.md says when this is safe: the lost members must be off, must stay off, and must never have been
    part of a cluster.
    """
    answer = api.client.call("POST", "/v1/cluster/found", body={"without": list(without)}).json
    lacking = answer["waiting_for"] or "the cluster is founded"
    api.show(answer, f"founding without {', '.join(answer['without'])}: {lacking}")


def _read(file: Path) -> Saved:
    try:
        return read_file(file)
    except OSError as error:
        raise click.ClickException(f"{file} cannot be read: {error.strerror}") from error
    except BadSave as error:
        raise click.ClickException(f"{file} cannot be used: {error}") from error


def _summary(saved: Saved) -> str:
    head: dict[str, Any] = saved.head
    when = datetime.fromtimestamp(head["saved_at_us"] / 1e6, UTC).isoformat(timespec="seconds")
    return (
        f"{len(saved.tasks)} tasks of cluster {head['cluster_id']} as of index {head['index']}, saved at {when}; "
        f"{head['active_runs']} runs that were active then are not in it"
    )


@cluster_command.command("recover")
@click.option(
    "--data",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The data folder (ROTA_DATA) of the surviving member; its node must not be running.",
)
@click.option("--yes", is_flag=True, help="Recover. Without this option, the command only reports what it would do.")
def recover_command(data: Path, yes: bool) -> None:
    """After the loss of a majority: make the one surviving member a new cluster.

    All data of this member is kept; data that only the other members had is lost. They can join again afterwards, each
    with an empty data folder and ROTA_JOIN; a node with its old data folder is refused.
    """
    from node.app.data_dir import DataDirInUse, ForeignFolder
    from node.app.recover import NotRecoverable, inspect, recover
    from node.cli.main import FAILED, WRONG_CALL
    from node.liveness.wall_clock import now_us
    from node.raft.errors import RaftError
    from node.state.codec import DamagedSnapshot

    try:
        survivor, cluster_id = recover(data, now_us()) if yes else (inspect(data, now_us()), "")
    except (NotRecoverable, DataDirInUse, ForeignFolder, RaftError, DamagedSnapshot, OSError, sqlite3.Error) as error:
        say(f"rota: {error}", err=True)
        sys.exit(FAILED)
    state = survivor.state
    click.echo(
        f"{survivor.node} of cluster {state.cluster_id}: its log ends with entry {survivor.last_index} of term "
        f"{survivor.term}; {len(state.tasks)} tasks, {len(state.runs)} active runs"
    )
    if not survivor.caught_up:
        click.echo(
            f"{survivor.node} had not caught up with the others since it lost its data folder: if another member "
            "survives, use that one"
        )
    others = ", ".join(survivor.others) or "no other member"
    if not yes:
        click.echo(
            f"it would be the only member of a new cluster, without {others}. If several members survive, use the "
            "one whose last entry has the latest term, and of those the one with the highest index. Nothing was "
            "changed: make sure that the others are off for good, then run the command again with --yes",
        )
        sys.exit(WRONG_CALL)
    click.echo(
        f"{survivor.node} is the only member of the new cluster {cluster_id}: start it as before. Then start the "
        f"others, each with an empty data folder and ROTA_JOIN, in this order, so that each owns the "
        f"same tasks again: {others}"
    )
