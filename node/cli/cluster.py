"""Commands for the cluster as a whole: status, settings, kinds, and which tasks would move if nodes were down."""

import json
import time
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from node.cli.api import Api, ago, api_command, mismatches_of, progress_text, status_of
from node.cli.reading import value as read_value
from node.client import ApiProblem, Unreachable
from node.runtime.plain_text import plain, plain_line


@click.command("plan")
@click.option("--without", multiple=True, required=True, metavar="NODE", help="Plan as if this node were down.")
@api_command
def plan_command(api: Api, without: tuple[str, ...]) -> None:
    """Show which tasks would move if these nodes were down."""
    answer = api.client.get("/v1/plan", without=",".join(without))
    api.show(answer, lambda: _print_plan(api, answer))


def _print_plan(api: Api, answer: dict[str, Any]) -> None:
    api.table(
        ("TASK", "FROM", "TO"),
        ((move["task"], move["from"], move["to"]) for move in answer["moves"]),
        "nothing would move",
    )
    click.echo()
    api.table(
        ("NODE", "LOAD NOW", "THEN"), ((node, load["now"], load["then"]) for node, load in answer["load"].items()), ""
    )


@click.command("settings")
@click.argument("changes", nargs=-1, metavar="[NAME=VALUE]...")
@api_command
def settings_command(api: Api, changes: tuple[str, ...]) -> None:
    """Show the cluster's settings, or change them with NAME=VALUE."""
    if not changes:
        settings = api.client.get("/v1/settings")
    else:
        body: dict[str, Any] = {}
        for change in changes:
            name, equals, value = change.partition("=")
            if not equals:
                raise click.UsageError(f"{change!r}: write it as NAME=VALUE")
            body[name] = read_value(name, value)
        settings = api.client.call("PATCH", "/v1/settings", body=body).json
    api.show(settings, lambda: api.fields({name: json.dumps(value) for name, value in settings.items()}))


@click.command("kinds")
@api_command
def kinds_command(api: Api) -> None:
    """List the kinds of task, the nodes that offer them, and their params."""
    answer = api.client.get("/v1/kinds")
    api.show(
        answer,
        lambda: api.table(
            ("KIND", "NODES", "PARAMS"),
            (
                (item["kind"], " ".join(item["members"]), " ".join((item["params"] or {}).get("properties", {})))
                for item in answer["items"]
            ),
            "no member offers a kind",
        ),
    )


@click.command("status")
@click.option("--watch", is_flag=True, help="Refresh once a second until interrupted.")
@api_command
def status_command(api: Api, watch: bool) -> None:
    """Show the members, the leader, the latest runs, and nodes of another build or secret."""
    if not watch:
        cluster, runs = _status(api)
        api.show(cluster, lambda: api.console.print(_picture(cluster, runs)))
        return
    with Live(console=api.console, refresh_per_second=4) as live:
        while True:
            try:
                live.update(_picture(*_status(api)))
            except (Unreachable, ApiProblem) as error:
                live.update(Text(plain(str(error)), style="red"))
            time.sleep(1)


def _status(api: Api) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return api.client.get("/v1/cluster"), api.client.get("/v1/runs", limit=15)["items"]


def _picture(cluster: dict[str, Any], runs: list[dict[str, Any]]) -> Group:
    members = Table("NODE", "STATUS", "SINCE", "LOAD", "RUNNING", box=None, pad_edge=False, header_style="bold")
    for member in cluster["members"]:
        colour = {"up": "green", "draining": "yellow"}.get(member["status"], "red")
        status = status_of(member)
        members.add_row(
            member["id"],
            Text(status, style=colour),
            ago(member["since"]) or "-",
            str(member["load"]),
            str(member["running"]),
        )
    table = Table("RUN", "STATE", "NODE", "TRY", "PROGRESS", box=None, pad_edge=False, header_style="bold")
    for run in runs:
        state = "frozen" if run.get("frozen_since") else run["state"]
        table.add_row(run["run_id"], state, run["node"] or "-", str(run["attempt"] or "-"), _progress(run))
    unfit = [Text(sentence, style="yellow") for sentence in mismatches_of(cluster)]
    return Group(_headline(cluster), *unfit, *_watchdog(cluster), "", members, "", table)


def _watchdog(cluster: dict[str, Any]) -> list[Text]:
    """Return a line about the pings to the outside watcher, if there is a watcher."""
    pings = cluster.get("watchdog")  # an earlier version does not send it
    if pings is None:
        return []
    if pings["at"] is None:
        leads, asked = pings["node"], pings["node"] == cluster["node"]
        how = "not pinged yet" if asked or leads is None else f"{leads} pings it; ask {leads} for the outcome"
        return [Text(f"watchdog: {how}")]
    if why := pings["withheld"]:
        return [Text(f"watchdog: withheld, {plain_line(why)}", style="yellow")]
    if why := pings["error"]:
        return [Text(f"watchdog: not pinged, tried {ago(pings['at'])}: {plain_line(why)}", style="red")]
    return [Text(f"watchdog: pinged {ago(pings['at'])}")]


def _headline(cluster: dict[str, Any]) -> Text:
    if cluster["waiting_for"]:
        return Text.assemble(
            (f"{cluster['node']} belongs to no cluster yet: ", "bold red"), plain(cluster["waiting_for"])
        )
    if not cluster["id"]:
        lead = f"{cluster['leader']} leads" if cluster["leader"] else "no leader is elected yet"
        return Text.assemble(
            (f"{cluster['node']} belongs to no cluster yet: ", "bold yellow"),
            f"it is being founded, or this node is joining ({lead}); this takes a few seconds",
        )
    return Text.assemble(
        ("Rota ", "bold"),
        f"{cluster['id']}  leader {cluster['leader'] or '-'}  term {cluster['term']}  index {cluster['index']}  ",
        ("quorum" if cluster["quorum"] else "NO QUORUM", "green" if cluster["quorum"] else "bold red"),
    )


def _progress(run: dict[str, Any]) -> str:
    done = run["progress"]
    if not done:
        return ""
    return progress_text(done["done"], done["total"], plain_line(done["unit"]))
