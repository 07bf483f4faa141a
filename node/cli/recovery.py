"""The cluster's own state, when things go wrong (RECOVERY.md): made anew of one member that is left."""

import sqlite3
import sys
from pathlib import Path

import click


@click.group("cluster")
def cluster_command() -> None:
    """Recover the cluster itself."""


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
    from node.cli.main import FAILED, WRONG_CALL
    from node.folder import FolderInUse, ForeignFolder
    from node.proposing import now_us
    from node.raft.errors import RaftError
    from node.recovery import NotRecoverable, look, recover
    from node.state.codec import DamagedSnapshot

    try:
        survivor, cluster_id = recover(data, now_us()) if yes else (look(data, now_us()), "")
    except (NotRecoverable, FolderInUse, ForeignFolder, RaftError, DamagedSnapshot, OSError, sqlite3.Error) as error:
        click.echo(f"rota: {error}", err=True)
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
