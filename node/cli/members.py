"""Commands for members: list, add, drain and remove them."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from node.cli.api import Api, ago, api_command, client_of, mismatches_of, percent, status_of
from node.cli.text import say
from node.client import path

if TYPE_CHECKING:
    from node.state.entries import Seed


@click.command("members")
@api_command
def members_command(api: Api) -> None:
    """List the members: status, capacity, load, labels and kinds.

    Below the list: the nodes that cannot confine or limit their tasks, and nodes of another build or secret.
    """
    answer = api.client.get("/v1/members")
    api.show(answer, lambda: _list(api, answer["items"]))


def _running(member: dict[str, Any]) -> str:
    """How many attempts a member holds, and of how many at most; members of an earlier version do not tell that."""
    most = member.get("max_runs")
    return str(member["running"]) if most is None else f"{member['running']} of {most}"


def _list(api: Api, members: list[dict[str, Any]]) -> None:
    api.table(
        ("NODE", "SLOT", "STATUS", "SINCE", "CAPACITY", "LOAD", "RUNNING", "LABELS", "KINDS"),
        (
            (
                member["id"],
                member["slot"],
                status_of(member),
                ago(member["since"]),
                member["capacity"],
                member["load"],
                _running(member),
                " ".join(f"{name}={value}" for name, value in member["labels"].items()) or None,
                " ".join(member["kinds"]) or None,
            )
            for member in members
        ),
        "no members yet",
    )
    said: dict[str, list[str]] = {}
    for told in api.client.get("/v1/vitals")["items"]:
        for sentence in told.get("not_kept") or ():
            said.setdefault(sentence, []).append(told["node"])
    for sentence, nodes in said.items():
        say(f"{', '.join(nodes)}: {sentence}")
    for sentence in mismatches_of(api.client.get("/v1/cluster")):
        say(sentence)


@click.command("join")
@click.argument("url")
@click.option("--id", "name", envvar="ROTA_NODE", help="The new node's id. Default: ROTA_NODE.")
@click.option(
    "--at",
    metavar="HOST:RAFTPORT:HTTPPORT",
    help="The new node's host and ports. Default: its entry in ROTA_MEMBERS.",
)
@api_command
def join_command(api: Api, url: str, name: str | None, at: str | None) -> None:
    """Add a new node to the cluster at URL. Start the node with ROTA_JOIN=URL afterwards."""
    seed = _new_member(name, at)
    body = {"id": seed.id, "host": seed.host, "raft_port": seed.raft_port, "http_port": seed.http_port}
    answer = client_of(url).call("POST", "/v1/members", body=body).json
    api.show(answer, f"{seed.id} may join now: start it with ROTA_JOIN={url}")


def _new_member(name: str | None, at: str | None) -> "Seed":
    # Imported here, because the settings' models take as long to import as everything else that a command needs.
    from node.settings.values import parse_members

    if not name:
        raise click.UsageError(
            "the new node's id is missing: give --id (and --at), or set ROTA_NODE (and ROTA_MEMBERS)"
        )
    text = f"{name}={at}" if at else os.environ.get("ROTA_MEMBERS", "")
    try:
        found = next((seed for seed in parse_members(text) if seed.id == name), None)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if found is None:
        raise click.UsageError(
            f"the address of {name} is missing: give --at HOST:RAFTPORT:HTTPPORT, or set ROTA_MEMBERS"
        )
    return found


@click.command("drain")
@click.argument("node")
@api_command
def drain_command(api: Api, node: str) -> None:
    """Give a node no new runs; its active runs finish there."""
    api.show(api.client.call("POST", path("v1", "members", node, "drain")).json, f"{node} is draining")


@click.command("undrain")
@click.argument("node")
@api_command
def undrain_command(api: Api, node: str) -> None:
    """Give a drained node new runs again."""
    api.show(api.client.call("POST", path("v1", "members", node, "undrain")).json, f"{node} is up")


@click.command("remove")
@click.argument("node")
@api_command
def remove_command(api: Api, node: str) -> None:
    """Remove a node from the cluster for good. The next node that joins takes its slot."""
    api.show(api.client.call("DELETE", path("v1", "members", node)).json, f"{node} is removed")


@click.command("bootstraps")
@api_command
def bootstraps_command(api: Api) -> None:
    """List which nodes fetch finished runs that they lack, from which nodes, and how far they are."""
    answer = api.client.get("/v1/bootstraps")
    api.show(
        answer,
        lambda: api.table(
            ("TASK", "OWNER", "STATE", "FROM", "RUNS", "RUNS/S", "DONE", "INDEX", "STARTED", "WAITS"),
            (_row(item) for item in answer["items"]),
            "no members yet",
        ),
    )


def _row(item: Mapping[str, Any]) -> tuple[object, ...]:
    latest = item["latest"]
    if latest is None:
        return (item["task"], item["owner"], *([None] * 8))
    fed = " ".join(f"{feeder}={runs}" for feeder, runs in latest["fed"].items())
    return (
        item["task"],
        item["owner"],
        latest["state"],
        fed or None,
        latest["runs"],
        latest["runs_per_s"],
        percent(latest),
        latest["index"],
        ago(latest["started_at"]),
        latest["waiting"],
    )
