"""Commands for the actions that a task's kind offers beside its runs: a preview, and the cursor of an ETL."""

import json
import sys
import uuid
from collections.abc import Mapping
from typing import Any, NoReturn

import click

from node.cli.api import Api, api_command
from node.cli.runs import given_params, print_end, wait_and_show
from node.cli.text import say
from node.client import path
from node.runtime.durations import seconds
from node.runtime.plain_text import plain_line

on_option = click.option("--on", "member", metavar="NODE", help="Of a task with each, which needs it: the node to ask.")


def _asked(
    api: Api, task: str, action: str, args: Mapping[str, Any], member: str | None, params: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Request an action, wait until its run has ended, and return the run. `member`: of a task with `each`."""
    body: dict[str, Any] = {"args": args, "params": params}
    if member is not None:
        body["member"] = member
    answer = api.client.call(
        "POST",
        path("v1", "tasks", task, "actions", action),
        body=body,
        headers={"Idempotency-Key": uuid.uuid4().hex},
    )
    return wait_and_show(api, answer.json["run_id"], answer.headers.get("Rota-Index", "0"))


def _end(api: Api, run: dict[str, Any]) -> NoReturn:
    """Print how the run ended, and exit with 1."""
    api.show(run, lambda: print_end(api, run))
    sys.exit(1)


@click.command("preview")
@click.argument("name")
@click.option("--rows", default=20, show_default=True, type=click.IntRange(1, 1000), help="How many rows to show.")
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="A param for this preview only, instead of the task's; VALUE is YAML.",
)
@click.option("--plan", is_flag=True, help="Print Spark's plan, too.")
@on_option
@api_command
def preview_command(api: Api, name: str, rows: int, params: tuple[str, ...], plan: bool, member: str | None) -> None:
    """Show the first rows that a task would write, and write nothing.

    For tasks whose kind has previews, such as `ingest` and `etl`. The preview runs where the task runs, with its
    secrets, beside the task's runs. The rows are in the result of the preview's run, which the history keeps.
    """
    run = _asked(api, name, "preview", {"rows": rows}, member, given_params(api, name, params))
    if run["state"] != "succeeded":
        _end(api, run)
    api.show(run["result"], lambda: _print_rows(api, run["result"], plan))


def _print_rows(api: Api, found: Mapping[str, Any], plan: bool) -> None:
    headings = [plain_line(f"{column['name']} ({column['type']})") for column in found["columns"]]
    cells = [[_cell(value) for value in row] for row in found["rows"]]
    api.table(headings or ("ROWS",), cells, "there are no rows")
    if found["more"]:
        say("... and more")
    if plan and found["plan"]:
        say(f"\n{found['plan']}")


def _cell(value: Any) -> str | None:
    """Return the text for a value in a table; None for null.

    >>> _cell(True), _cell(2.5), _cell("a b"), _cell(None)
    ('true', '2.5', 'a b', None)
    """
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


@click.group("etl")
def etl_command() -> None:
    """Show and set how far an ETL task has read its source.

    Both commands run where the task runs, with its secrets, beside the task's runs.
    """


@etl_command.command("show")
@click.argument("name")
@on_option
@api_command
def show_etl_command(api: Api, name: str, member: str | None) -> None:
    """Show the last batch in the sink, its cursor, and the part of the source that is new since then."""
    run = _asked(api, name, "show", {}, member)
    if run["state"] != "succeeded":
        _end(api, run)
    api.show(run["result"], lambda: api.fields(_shown(run["result"])))


@etl_command.command("reset")
@click.argument("name")
@click.option(
    "--to",
    metavar="CURSOR",
    help="Where the next run begins: a value of the cursor's column, a transaction for xmin, a version for versions, "
    "a time such as 2026-01-05T09:00:00+00:00 for files, or JSON as `rota etl show` prints it. Not given: at the "
    "beginning of the source.",
)
@on_option
@api_command
def reset_command(api: Api, name: str, to: str | None, member: str | None) -> None:
    """Set the cursor in the sink: the next batch begins at the cursor. Rows that are in the sink already are kept."""
    run = _asked(api, name, "reset", {"to": to}, member)
    if run["state"] != "succeeded":
        _end(api, run)
    api.show(run["result"], lambda: api.fields(_shown(run["result"])))


def _shown(found: Mapping[str, Any]) -> dict[str, object]:
    """Return the fields of a cursor, in words for people.

    >>> _shown({"batch": 3, "run_id": "t~1", "token": 7, "cursor": {"cursor": "at", "value": "x"}, "lag_s": 75.0})
    {'last batch': 3, 'of run': 't~1', 'cursor': '{"cursor": "at", "value": "x"}', 'behind': '1 min 15 s'}
    """
    lag = found.get("lag_s")
    lines: dict[str, object] = {
        "last batch": found["batch"] or "none",
        "of run": found["run_id"],
        "cursor": json.dumps(found["cursor"]) if found["cursor"] else "the beginning",
        "behind": None if lag is None else seconds(lag),
    }
    if "next" in found:
        lines["next"] = _next(found["next"])
    return lines


def _next(batch: Mapping[str, Any] | None) -> str:
    """Say which part of the source the next batch would read.

    >>> _next(None), _next({"whole": True}), _next({"above": 7, "to": 9})
    ('nothing is new', 'the whole source', '{"above": 7, "to": 9}')
    >>> _next({"refused": "the sink's last batch was read from table one"})
    "the next run would fail: the sink's last batch was read from table one"
    """
    match batch:
        case None:
            return "nothing is new"
        case {"whole": True}:
            return "the whole source"
        case {"refused": str(why)}:
            return f"the next run would fail: {why}"
    return json.dumps(batch)
