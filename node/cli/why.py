"""The command `rota why`: the reason why a task does not run, or where it runs."""

from typing import Any

import click

from node.cli.api import Api, ago, api_command
from node.cli.text import say
from node.client import ApiProblem, path


@click.command("why")
@click.argument("name")
@click.option("--run", "run_id", metavar="RUN", help="Of this active run; by default of what waits first.")
@api_command
def why_command(api: Api, name: str, run_id: str | None) -> None:
    """Say why a task does not run and what to do about it, or where it runs.

    Below the answer are the steps that led to it: the checks made, in order, up to the first that holds the task.
    """
    answer = api.client.get(path("v1", "tasks", name, "why"), run_id=run_id)
    api.show(answer, lambda: _print(api, answer))


def _print(api: Api, answer: dict[str, Any]) -> None:
    say(answer["sentence"])
    say("")
    ended = "runs" if answer["code"] == "running" else "held"
    steps = {step["place"]: ("" if not step["ends"] else f"{ended}: ") + step["found"] for step in answer["steps"]}
    api.fields(steps | ({"late": _late(late)} if (late := answer.get("late")) else {}))


def why_it_waits(api: Api, run_id: str, task: str) -> str:
    """Say why a run waits."""
    try:
        return str(api.client.get(path("v1", "tasks", task, "why"), run_id=run_id)["detail"])
    except ApiProblem as problem:
        return f"the node that was asked cannot say why: {problem.detail}"  # the run began, or the node is outdated


def state_of(item: dict[str, Any]) -> str:
    """Return the state of a listed task, with its breached deadlines, and the reason if it is held unexpectedly.

    Older nodes do not send `held`, `late` and `degraded`.

    >>> state_of({"paused": False, "enabled": True, "held": {"code": "max_runs", "until": None}})
    'enabled, held: max runs'
    """
    state = "paused" if item["paused"] else "enabled" if item["enabled"] else "disabled"
    if late := item.get("late"):
        state += f", late: {_late(late)}"
    if degraded := item.get("degraded"):
        state += f", in part: {degraded}"
    held = item.get("held")
    if not held:
        return state
    until = f" (until {ago(held['until'])})" if held["until"] else ""
    what = "due and not begun" if held["code"] == "due" else held["code"].replace("_", " ")
    return f"{state}, held: {what}{until}"


def _late(late: list[dict[str, Any]]) -> str:
    """Describe breached deadlines in words."""
    return ", ".join(f"{one['detail']} (since {ago(one['since'])})" for one in late)
