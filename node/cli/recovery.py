"""The cluster itself, when things go wrong (RECOVERY.md): saved, put back, made anew of one member that is left."""

import sqlite3
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from node.cli.api import Api, api_command
from node.cli.saving import ForeignTasks, load, read_file, save
from node.cli.text import say
from node.client import ApiProblem, Unreachable
from node.state.saved import BadSave, Saved

FILE = click.Path(dir_okay=False, path_type=Path)


@click.group("cluster")
def cluster_command() -> None:
    """Save the cluster's own state, put it back, recover a lost majority; found without lost members."""


@cluster_command.command("save")
@click.argument("file", type=FILE)
@api_command
def save_command(api: Api, file: Path) -> None:
    """Write the cluster's settings and tasks, with their schedules, counters and last outcomes, to FILE.

    Members, history and what runs are not in it.
    """
    try:
        saved = save(api.client, file)
    except (OSError, BadSave) as error:
        raise click.ClickException(f"{file} was not written: {error}") from error
    api.show(saved.head, f"saved to {file}: {_told(saved)}")


@cluster_command.command("load")
@click.argument("file", type=FILE)
@api_command
def load_command(api: Api, file: Path) -> None:
    """Put what is in FILE into a new cluster, one without tasks.

    Tasks keep their place, so the same members get the same work, and their schedules go on from where they were: what
    fell due meanwhile is caught up with as each task says. If it breaks off, the same command goes on.
    """
    saved = _read(file)
    try:
        loaded = load(api.client, saved)
    except ForeignTasks as error:
        raise click.ClickException(str(error)) from error
    except (ApiProblem, Unreachable):
        click.echo("rota: it broke off, and can be gone on with: give the same command again", err=True)
        raise
    there = len(saved.tasks) - loaded
    before = f" ({there} were there already)" if there else ""
    api.show({"loaded": loaded, "there_already": there}, f"loaded {loaded} tasks{before}, from {_told(saved)}")


@cluster_command.command("show")
@click.argument("file", type=FILE)
def show_command(file: Path) -> None:
    """Check FILE, and tell what is in it. It is JSON, a line each."""
    saved = _read(file)
    say(_told(saved))
    for name, value in saved.head["settings"].items():
        say(f"  {name} = {value}")
    for row in saved.tasks:
        last = row["last"]["state"] if row["last"] else "never ran"
        paused = ", paused" if row["paused"] else ""
        say(f"{row['task']['name']}  {row['task']['kind']}, version {row['version']}{paused}, {last}")


@cluster_command.command("found")
@click.option("--without", multiple=True, required=True, metavar="NODE", help="A member that is lost, and stays off.")
@api_command
def found_command(api: Api, without: tuple[str, ...]) -> None:
    """Found the first cluster without members that are lost. Ask a node that waits for them.

    The others that wait accept it by themselves, each unless it hears one of those. See RECOVERY.md for when that is
    safe: those nodes must be off, must stay off, and must never have been of a cluster.
    """
    answer = api.client.call("POST", "/v1/cluster/found", body={"without": list(without)}).json
    lacking = answer["waiting_for"] or "it is founded"
    api.show(answer, f"to be founded without {', '.join(answer['without'])}; {lacking}")


def _read(file: Path) -> Saved:
    try:
        return read_file(file)
    except OSError as error:
        raise click.ClickException(f"{file} cannot be read: {error.strerror}") from error
    except BadSave as error:
        raise click.ClickException(f"{file} is not used: {error}") from error


def _told(saved: Saved) -> str:
    head: dict[str, Any] = saved.head
    when = datetime.fromtimestamp(head["saved_at_us"] / 1e6, UTC).isoformat(timespec="seconds")
    return (
        f"{len(saved.tasks)} tasks of cluster {head['cluster_id']} as of index {head['index']}, saved at {when}; "
        f"{head['active_runs']} runs that were under way are not in it"
    )


@cluster_command.command("recover")
@click.option(
    "--data",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The data folder (ROTA_DATA) of the member that is left; its node must not run.",
)
@click.option("--yes", is_flag=True, help="Do it. Without it, what is there is told, and nothing done.")
def recover_command(data: Path, yes: bool) -> None:
    """When a majority is lost for good: make the one member that is left a new cluster.

    Nothing that this member has is lost; what only the others had is. They can come in again afterwards, each with an
    empty data folder and ROTA_JOIN; with its old folder none of them is let in.
    """
    from node.app.data_dir import DataDirInUse, ForeignFolder
    from node.app.recover import NotRecoverable, look, recover
    from node.cli.main import FAILED, WRONG_CALL
    from node.liveness.wall_clock import now_us
    from node.raft.errors import RaftError
    from node.state.codec import DamagedSnapshot

    try:
        survivor, cluster_id = recover(data, now_us()) if yes else (look(data, now_us()), "")
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
            f"{survivor.node} had not caught up with the others since it lost its folder: if any other member is "
            "left, take that one"
        )
    others = ", ".join(survivor.others) or "nobody"
    if not yes:
        click.echo(
            f"it would be the only member of a new cluster, without {others}. If several members are left, take the "
            "one whose last entry is of the latest term, and of those the one with the most entries. Nothing was done: "
            "make sure that the others are off for good, and say --yes",
        )
        sys.exit(WRONG_CALL)
    click.echo(
        f"{survivor.node} is the only member of the new cluster {cluster_id}: start it as before. Then let others in, "
        f"each with an empty data folder and ROTA_JOIN, in this order, so that each gets its own work again: {others}"
    )
