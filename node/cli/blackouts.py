"""Commands for blackouts: list them, add one, end one."""

from datetime import datetime
from typing import Any

import click

from node.cli.api import Api, ago, api_command
from node.client import path


@click.group("blackout", invoke_without_command=True)
@click.pass_context
def blackout_command(context: click.Context) -> None:
    """List, add and end blackouts: times in which no new occurrence, retry or run by hand begins.

    What runs goes on, and so do failovers and continuous tasks.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_blackouts_command)


@blackout_command.command("list")
@api_command
def list_blackouts_command(api: Api) -> None:
    """List the blackouts, also those that ended lately."""
    answer = api.client.get("/v1/blackouts")
    api.show(
        answer,
        lambda: api.table(
            ("BLACKOUT", "BEGINS", "ENDS", "TASKS", "STATE"),
            (
                (
                    one["name"],
                    one["begins"],
                    one["ends"],
                    ", ".join(f"{name}={value}" for name, value in one["labels"].items()) or "all",
                    _state(one),
                )
                for one in answer["items"]
            ),
            "there are no blackouts; add one with: rota blackout add NAME --until TIME",
        ),
    )


@blackout_command.command("add")
@click.argument("name")
@click.option("--from", "begins", metavar="TIME", help="When it begins, with an offset; without: now.")
@click.option("--until", "ends", metavar="TIME", required=True, help="When it ends, such as 2026-12-24T06:00:00+01:00.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Hold only tasks with this label, too.")
@api_command
def add_blackout_command(api: Api, name: str, begins: str | None, ends: str, labels: tuple[str, ...]) -> None:
    """Add a blackout, or change one."""
    given: dict[str, str] = {}
    for text in labels:
        label, equals, value = text.partition("=")
        if not equals or not label:
            raise click.UsageError(f"{text!r}: write a label as NAME=VALUE, such as team=bi")
        given[label] = value
    body = {"begins": None if begins is None else _time(begins), "ends": _time(ends), "labels": given}
    item = api.client.call("PUT", path("v1", "blackouts", name), body=body).json
    holds = "holds tasks now" if item["active"] else f"begins {ago(item['begins'])}"
    api.show(item, f"{name} {holds}, and ends {ago(item['ends'])}")


@blackout_command.command("end")
@click.argument("name")
@api_command
def end_blackout_command(api: Api, name: str) -> None:
    """End a blackout now, or take back one that is to come."""
    api.client.call("DELETE", path("v1", "blackouts", name))
    api.show(None, f"{name} is over")


def _state(blackout: dict[str, Any]) -> str:
    if blackout["active"]:
        return f"holds tasks, ends {ago(blackout['ends'])}"
    begins = ago(blackout["begins"]) or ""
    return f"begins {begins}" if begins.startswith("in ") else "over"


def _time(text: str) -> str:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise click.UsageError(f"{text!r} is no time with an offset, such as 2026-12-24T06:00:00+01:00")
    return at.isoformat()
