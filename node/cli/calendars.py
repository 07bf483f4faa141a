"""Commands for calendars: list and show them, give them days, delete them."""

from datetime import date

import click

from node.cli.api import Api, api_command
from node.cli.calendar_days import days_in, days_of_events
from node.cli.text import input_text, say, source_name
from node.client import path


@click.group("calendar", invoke_without_command=True)
@click.pass_context
def calendar_command(context: click.Context) -> None:
    """List and change the calendars by which tasks are due, or not: by `calendar` in a task's definition.

    Public holidays need none: a task names `holidays/DE-BY`, say.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_calendars_command)


@calendar_command.command("list")
@api_command
def list_calendars_command(api: Api) -> None:
    """List the calendars. Those of public holidays are there once a task has used them."""
    items = list(api.client.items("/v1/calendars"))
    api.show(
        {"items": items, "next": None},
        lambda: api.table(
            ("CALENDAR", "DAYS", "KNOWN UNTIL", "TASKS"),
            ((one["name"], one["count"], one["known_until"], one["tasks"]) for one in items),
            "no calendars yet: make one with `rota calendar set NAME DATE...`",
        ),
    )


@calendar_command.command("show")
@click.argument("name")
@api_command
def show_calendar_command(api: Api, name: str) -> None:
    """Show the days of a calendar."""
    item = api.client.get(path("v1", "calendars", name))
    api.show(item, lambda: say("\n".join(f"{date.fromisoformat(one):%Y-%m-%d %a}" for one in item["dates"])))


@calendar_command.command("set")
@click.argument("name")
@click.argument("dates", nargs=-1, metavar="[DATE|FROM..UNTIL]...")
@click.option("--ics", metavar="FILE", help="The days of the events of an iCalendar file, too; - for standard input.")
@api_command
def set_calendar_command(api: Api, name: str, dates: tuple[str, ...], ics: str | None) -> None:
    """Make a calendar, or give it other days: these and no others."""
    days = sorted({*days_in(dates), *(days_of_events(input_text(ics), source_name(ics)) if ics else ())})
    answer = api.client.call("PUT", path("v1", "calendars", name), body={"dates": [one.isoformat() for one in days]})
    done = "made" if answer.status == 201 else "set"
    api.show(answer.json, f"{name} is {done}: {len(days)} {'day' if len(days) == 1 else 'days'}")


@calendar_command.command("delete")
@click.argument("name")
@api_command
def delete_calendar_command(api: Api, name: str) -> None:
    """Delete a calendar that no task uses."""
    api.client.call("DELETE", path("v1", "calendars", name))
    api.show(None, f"{name} is deleted")
