"""Members: who they are, and letting them in, rest and go."""

import os

import click

from node.app.config import parse_members
from node.cli.api import Api, ago, api_command, client_of, status_of
from node.client import path
from node.state.entries import Seed


@click.command("members")
@api_command
def members_command(api: Api) -> None:
    """The nodes of the cluster."""
    answer = api.client.get("/v1/members")
    api.show(
        answer,
        lambda: api.table(
            ("NODE", "SLOT", "STATUS", "SINCE", "CAPACITY", "LOAD", "RUNNING", "LABELS", "KINDS"),
            (
                (
                    member["id"],
                    member["slot"],
                    status_of(member),
                    ago(member["since"]),
                    member["capacity"],
                    member["load"],
                    member["running"],
                    " ".join(f"{name}={value}" for name, value in member["labels"].items()) or None,
                    " ".join(member["kinds"]) or None,
                )
                for member in answer["items"]
            ),
            "no members yet",
        ),
    )


@click.command("join")
@click.argument("url")
@click.option("--id", "name", envvar="ROTA_NODE", help="The new node's id; ROTA_NODE unless given.")
@click.option(
    "--at",
    metavar="HOST:RAFTPORT:HTTPPORT",
    help="Where the new node will be; what ROTA_MEMBERS says of it unless given.",
)
@api_command
def join_command(api: Api, url: str, name: str | None, at: str | None) -> None:
    """Let a new node into the cluster at URL; then start the node with ROTA_JOIN=URL."""
    seed = _newcomer(name, at)
    body = {"id": seed.id, "host": seed.host, "raft_port": seed.raft_port, "http_port": seed.http_port}
    answer = client_of(url).call("POST", "/v1/members", body=body).json
    api.show(answer, f"{seed.id} may join now: start it with ROTA_JOIN={url}")


def _newcomer(name: str | None, at: str | None) -> Seed:
    if not name:
        raise click.UsageError("which node? Say it with --id (and --at), or in ROTA_NODE (and ROTA_MEMBERS)")
    text = f"{name}={at}" if at else os.environ.get("ROTA_MEMBERS", "")
    try:
        found = next((seed for seed in parse_members(text) if seed.id == name), None)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if found is None:
        raise click.UsageError(f"where will {name} be? Say it with --at HOST:RAFTPORT:HTTPPORT, or in ROTA_MEMBERS")
    return found


@click.command("drain")
@click.argument("node")
@api_command
def drain_command(api: Api, node: str) -> None:
    """Give a node nothing new; what runs there ends there."""
    api.show(api.client.call("POST", path("v1", "members", node, "drain")).json, f"{node} is draining")


@click.command("undrain")
@click.argument("node")
@api_command
def undrain_command(api: Api, node: str) -> None:
    """Give a node work again."""
    api.show(api.client.call("POST", path("v1", "members", node, "undrain")).json, f"{node} is up")


@click.command("remove")
@click.argument("node")
@api_command
def remove_command(api: Api, node: str) -> None:
    """Let a node go for good; the next to join takes its slot."""
    api.show(api.client.call("DELETE", path("v1", "members", node)).json, f"{node} is removed")
