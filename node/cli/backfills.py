"""Commands for backfills: run a task for times that are past; list, show, pause, resume and cancel backfills."""

import re
from typing import Any, Final

import click

from node.cli.api import Api, ago, api_command
from node.cli.text import say
from node.client import path
from node.runtime.durations import seconds

_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


class _TaskFirst(click.Group):
    """A group whose command `start` is meant where the first word is no command's name: it is a task then."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command as the base class does, or `start` for a task."""
        return super().resolve_command(ctx, args if args[0] in self.commands else ["start", *args])


@click.group("backfill", cls=_TaskFirst, subcommand_metavar="TASK --from TIME | COMMAND [ARGS]...")
def backfill_command() -> None:
    """Run a task for times of its schedule that are past: `rota backfill TASK --from 2026-01-01T00:00:00Z`.

    Its runs begin behind everything else, and count neither for deadlines nor as the task's last outcome.
    """


@backfill_command.command("start")
@click.argument("task")
@click.option(
    "--from", "from_time", required=True, metavar="TIME", help="The first time: 2026-01-31T00:00:00Z or 2026-01-31."
)
@click.option("--to", "to_time", metavar="TIME", help="The first time after them. Not given: now.")
@click.option("--downstream", is_flag=True, help="Run the tasks after it, too, each once those before it have ended.")
@click.option("--parallel", type=int, metavar="N", help="How many of its times are under way at once, 16 at most.")
@click.option("--newest-first", is_flag=True, help="Begin with the latest time.")
@click.option("--dry-run", is_flag=True, help="Only say what it would do, and how long it would take at least.")
@api_command
def start_command(
    api: Api,
    task: str,
    from_time: str,
    to_time: str | None,
    downstream: bool,
    parallel: int | None,
    newest_first: bool,
    dry_run: bool,
) -> None:
    """Run TASK for the times of its schedule from one time on and before another. `start` may be left out."""
    given = {
        "from": _time(from_time),
        "to": None if to_time is None else _time(to_time),
        "downstream": downstream or None,
        "parallel": parallel,
        "newest_first": newest_first or None,
        "dry_run": dry_run or None,
    }
    body = {name: value for name, value in given.items() if value is not None}
    answer = api.client.call("POST", path("v1", "tasks", task, "backfills"), body=body).json
    if dry_run:
        api.show(answer, lambda: _print_plan(api, answer))
        return
    number = answer["number"]
    begun = f"backfill {number}: {answer['total']} times of {task}; see it: rota backfill show {number}"
    api.show(answer, begun)


def _time(text: str) -> str:
    """Return a time as the API reads it: of a day alone, its beginning in UTC.

    >>> _time("2026-01-05"), _time("2026-01-05T03:00:00+01:00")
    ('2026-01-05T00:00:00Z', '2026-01-05T03:00:00+01:00')
    """
    return f"{text}T00:00:00Z" if _DAY.fullmatch(text) else text


def _print_plan(api: Api, plan: dict[str, Any]) -> None:
    least = plan["estimate_s"]
    api.fields(
        {
            "times": plan["total"],
            "first": plan["first"],
            "last": plan["last"],
            "tasks": ", ".join(plan["tasks"]),
            "one at a time": ", ".join(plan["one_at_a_time"]) or None,
            "takes at least": "not known: some of them have no runs yet" if least is None else seconds(least),
        }
    )


@backfill_command.command("list")
@api_command
def list_backfills_command(api: Api) -> None:
    """List the open backfills and the latest ended ones, the newest first."""
    answer = api.client.get("/v1/backfills")
    api.show(
        answer,
        lambda: api.table(
            ("NUMBER", "TASK", "FROM", "TO", "STATUS", "DONE", "FAILED", "LEFT", "TIME LEFT"),
            (
                (
                    one["number"],
                    one["task"],
                    one["from"],
                    one["to"],
                    one["status"],
                    f"{one['total'] - one['left']} of {one['total']}",
                    one["failed"],
                    one["left"],
                    None if one["left_s"] is None else seconds(one["left_s"]),
                )
                for one in answer["items"]
            ),
            "no backfills yet: begin one with `rota backfill TASK --from TIME`",
        ),
    )


@backfill_command.command("show")
@click.argument("number", type=int)
@api_command
def show_backfill_command(api: Api, number: int) -> None:
    """Show one backfill: how far it is, what is under way, and what failed."""
    answer = api.client.get(_path(number))
    api.show(answer, lambda: _print(api, answer))


def _print(api: Api, one: dict[str, Any]) -> None:
    why = f" ({one['why']})" if one["why"] else ""
    rate = "" if one["per_hour"] is None else f", {one['per_hour']:g} an hour"
    left = "" if one["left_s"] is None else f", {seconds(one['left_s'])} left"
    api.fields(
        {
            "task": one["task"] + (" and the tasks after it" if one["downstream"] else ""),
            "from": one["from"],
            "to": one["to"],
            "order": "newest first" if one["newest_first"] else "oldest first",
            "status": f"{one['status']}{why}",
            "done": f"{one['total'] - one['left']} of {one['total']}{rate}{left}",
            "succeeded": one["succeeded"],
            "failed": one["failed"],
            "skipped": one["skipped"],
            "asked": f"{ago(one['asked_at'])}" + (f" by {one['asked_by']}" if one["asked_by"] else ""),
            "ended": one["ended_at"],
        }
    )
    for each in one["in_flight"]:
        say(f"under way  {each['at']}  {', '.join(each['runs'])}")
    for each in one["failures"]:
        say(f"failed     {each['at']}  {each['run_id']}")


@backfill_command.command("pause")
@click.argument("number", type=int)
@api_command
def pause_backfill_command(api: Api, number: int) -> None:
    """Begin no more of a backfill's times. What is under way goes on."""
    _changed(api, api.client.call("POST", path("v1", "backfills", str(number), "pause")).json)


@backfill_command.command("resume")
@click.argument("number", type=int)
@api_command
def resume_backfill_command(api: Api, number: int) -> None:
    """Go on with a paused backfill."""
    _changed(api, api.client.call("POST", path("v1", "backfills", str(number), "resume")).json)


@backfill_command.command("cancel")
@click.argument("number", type=int)
@api_command
def cancel_backfill_command(api: Api, number: int) -> None:
    """Cancel a backfill and its active runs."""
    _changed(api, api.client.call("DELETE", _path(number)).json)


def _path(number: int) -> str:
    return path("v1", "backfills", str(number))


def _changed(api: Api, answer: dict[str, Any]) -> None:
    api.show(answer, f"backfill {answer['number']} is {answer['status']}")
