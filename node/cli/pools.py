"""Commands for pools: list them, make or change them, remove them."""

from datetime import UTC, datetime
from typing import Any, Final

import click

from node.cli.api import Api, ago, api_command
from node.cli.text import say

_NAMED_MAX: Final = 5


@click.group("pools", invoke_without_command=True)
@click.pass_context
def pools_command(context: click.Context) -> None:
    """Show what of each pool is used, by which runs, and who waits.

    Runs use pools by `uses` in a task's definition, and start in them at its `rate`.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_pools_command)


@pools_command.command("list")
@api_command
def list_pools_command(api: Api) -> None:
    """Show what of each pool is used, by which runs, and who waits."""
    items = list(api.client.items("/v1/pools"))
    api.show({"items": items, "next": None}, lambda: _list(api, items))


def _list(api: Api, pools: list[dict[str, Any]]) -> None:
    api.table(
        ("POOL", "USED", "OF", "SET", "TASKS", "HELD BY", "WAITING", "NEXT START"),
        (
            (
                pool["name"],
                pool["used"],
                pool["capacity"],
                pool.get("set"),  # older nodes do not send it
                pool["tasks"],
                _named([f"{one['run_id']} ({ago(one['since'])})" for one in pool["holders"]], len(pool["holders"])),
                _named([one["task"] for one in pool["waiting"]], pool["waiters"]),
                _next_start(pool.get("next_start")),
            )
            for pool in pools
        ),
        "no pools yet: make one with `rota pools set NAME=NUMBER`",
    )


def _next_start(at: str | None) -> str | None:
    """Say when the next run with a rate may start. None: none has started, or the node is of an earlier version."""
    return "now" if at is not None and datetime.fromisoformat(at) <= datetime.now(UTC) else ago(at)


def _named(names: list[str], count: int) -> str | None:
    """Name the first ones, and say how many more there are. None: there are none."""
    more = count - len(names[:_NAMED_MAX])
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more else "") if names else None


@pools_command.command("set")
@click.argument("capacities", nargs=-1, required=True, metavar="NAME=NUMBER...")
@api_command
def set_pools_command(api: Api, capacities: tuple[str, ...]) -> None:
    """Make pools, or change how much there is of them.

    A smaller number ends no run: those that use more than there is now end by themselves. With 0, none begins.
    """
    given: dict[str, int] = {}
    for text in capacities:
        name, equals, number = text.rpartition("=")
        if not equals or not (number.isascii() and number.isdecimal()):
            raise click.UsageError(f"{text!r}: write it as NAME=NUMBER, such as dumps=2")
        given[name] = int(number)
    _change(api, given)


@pools_command.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@api_command
def remove_pools_command(api: Api, names: tuple[str, ...]) -> None:
    """Remove pools that no task uses."""
    _change(api, dict.fromkeys(names))


def _change(api: Api, pools: dict[str, Any]) -> None:
    settings = api.client.call("PATCH", "/v1/settings", body={"pools": pools}).json
    left = settings["pools"]
    api.show(settings, lambda: say(", ".join(f"{name}: {left.get(name, 'removed')}" for name in pools)))
