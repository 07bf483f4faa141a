"""Commands for calendars: list and show them, give them days, delete them; and a week of all schedules."""

from collections.abc import Iterator
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

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
            ("CALENDAR", "DAYS", "KNOWN UNTIL", "SET", "TASKS"),
            ((one["name"], one["count"], one["known_until"], one.get("set"), one["tasks"]) for one in items),
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


@calendar_command.command("week")
@click.option("--begins", metavar="DATE", help="Its first day, such as 2026-11-30; by default today.")
@click.option("--timezone", default="UTC", show_default=True, help="The time zone of its days, such as Europe/Paris.")
@api_command
def week_command(api: Api, begins: str | None, timezone: str) -> None:
    """Show what is due within a week, day by day, what calendars leave out, and what collides.

    It goes by the present schedules alone. What is due more than six times a day is summed up.
    """
    answer = api.client.get("/v1/week", begins=begins, timezone=timezone)
    api.show(answer, lambda: say("\n".join(week_lines(answer))))


def week_lines(answer: dict[str, Any]) -> Iterator[str]:
    """Yield a week of the API as lines for people."""
    zone = ZoneInfo(answer["timezone"])
    for day in answer["days"]:
        yield f"{date.fromisoformat(day['day']):%a %Y-%m-%d}: {day['count']} due"
        for hour in day["hours"]:
            listed = 0
            for due in hour["due"]:
                listed += due["count"]
                yield f"  {_clock(due['at'], zone)}  {_some(due['tasks'], due['count'])}"
            if hour["count"] > listed:
                yield f"  {hour['hour']:02}:..  and {hour['count'] - listed} more"
        for out in day["left_out"]:
            becomes = f"moved to {out['moved_to']}" if out["moved_to"] else "not due"
            yield f"  {becomes}: {_some(out['tasks'], out['count'])} ({', '.join(out['calendars'])})"
    for one in answer["blackouts"]:
        held = ", ".join(f"{name}={value}" for name, value in one["labels"].items()) or "all tasks"
        yield f"blackout {one['name']}: {one['begins']} to {one['ends']}, holds {held}"
    for one in answer["often"]:
        yield f"often, {_schedule(one['schedule'])}: {_some(one['tasks'], one['count'])}"
    for one in answer["collisions"]:
        when = (
            "in every minute" if one["always"] else f"at {_clock(one['times'][0], zone)} on {_days(one['times'], zone)}"
        )
        what = f"up to {one['most']} of the pool {one['pool']} used" if one["pool"] else f"up to {one['most']} due"
        room = f"it has {one['room']}" if one["pool"] else f"{one['room']} places"
        named = f": {', '.join(one['tasks'])}{', ...' if len(one['tasks']) > 2 else ''}" if one["tasks"] else ""
        yield f"collides {when}: {what}, {room}{named}"
    if answer["more_collisions"]:
        yield f"and {answer['more_collisions']} more collisions"
    if answer["cut"]:
        yield f"{answer['cut']} tasks are left out, because there are too many times"
    if answer["unknown_days"]:
        yield f"{answer['unknown_days']} tasks have calendars whose days are not known up to the end of the week"


def _clock(at: str, zone: ZoneInfo) -> str:
    return f"{datetime.fromisoformat(at).astimezone(zone):%H:%M}"


def _days(times: list[str], zone: ZoneInfo) -> str:
    return ", ".join(f"{datetime.fromisoformat(at).astimezone(zone):%a}" for at in times)


def _some(tasks: list[str], count: int) -> str:
    return ", ".join(tasks) + (f" and {count - len(tasks)} more" if count > len(tasks) else "")


def _schedule(schedule: dict[str, Any]) -> str:
    if "every_s" in schedule:
        return f"every {schedule['every_s']:g} s"
    return f"{schedule['cron']} {schedule.get('timezone', 'UTC')}" if "cron" in schedule else "all the time"
