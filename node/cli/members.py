"""Members: who they are, and letting them in, rest and go."""

import click

from node.cli.api import Api, ago, api_command
from node.cli.client import path


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
                    member["status"] + (f" ({member['reason']})" if member["reason"] else ""),
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
@click.argument("url", metavar="HOST:RAFTPORT:HTTPPORT")
@click.option("--id", "member", required=True, help="The new node's id (its ROTA_NODE).")
@api_command
def join_command(api: Api, url: str, member: str) -> None:
    """Let a new node in; then start it with ROTA_JOIN set to this cluster's address."""
    host, _, http_port = url.rpartition(":")
    host, _, raft_port = host.rpartition(":")
    if not (host and raft_port.isdigit() and http_port.isdigit()):
        raise click.UsageError(f"{url!r} is not HOST:RAFTPORT:HTTPPORT")
    body = {"id": member, "host": host, "raft_port": int(raft_port), "http_port": int(http_port)}
    answer = api.client.call("POST", "/v1/members", body=body).json
    api.show(answer, f"{member} may join now")


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
