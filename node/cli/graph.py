"""The command `rota graph`: what comes before and after a task, and where an occurrence is on its way through them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import click

from node.cli.api import Api, ago, api_command
from node.cli.text import say
from node.client import path


@click.command("graph")
@click.argument("name", metavar="[TASK]", required=False)
@click.option("--at", metavar="TIME", help="The latest occurrence at or before this time: 2026-11-27T02:00:00Z.")
@click.option("--run", "run_id", metavar="RUN", help="The occurrence of this run.")
@click.option("--set", "set_name", help="Without TASK: only tasks of this set of files.")
@click.option("--label", metavar="NAME=VALUE", help="Without TASK: only tasks with this label.")
@click.option("--mermaid", is_flag=True, help="Print it as a Mermaid flowchart, for a pull request or a page.")
@api_command
def graph_command(
    api: Api,
    name: str | None,
    at: str | None,
    run_id: str | None,
    set_name: str | None,
    label: str | None,
    mermaid: bool,
) -> None:
    """Show all tasks before and after a task, and how each of them is; or one occurrence on its way through them.

    Without TASK, all tasks that come after others, set by set. With --set or --label, the others, too.
    """
    if name is None:
        if at is not None or run_id is not None:
            raise click.UsageError("--at and --run are about an occurrence of a task: name the task")
        answer = api.client.get("/v1/graph", set=set_name, label=label)
        if set_name is None and label is None:
            answer = {**answer, "alone": [], "alone_left_out": 0}  # most of them have nothing to do with each other
    elif set_name is not None or label is not None:
        raise click.UsageError("--set and --label are for all tasks of a choice: name no task with them")
    elif at is not None and run_id is not None:
        raise click.UsageError("--at and --run both name an occurrence: give one of them")
    else:
        answer = api.client.get(path("v1", "tasks", name, "graph"), at=at, run_id=run_id)
    api.show(answer, (lambda: say("\n".join(mermaid_lines(answer)))) if mermaid else lambda: _print(api, answer))


def _print(api: Api, answer: dict[str, Any]) -> None:
    if (occurrence := answer["occurrence"]) is not None:
        say(f"occurrence of {_named(occurrence)}\n")
    by_set: dict[str | None, list[dict[str, Any]]] = defaultdict(list)
    for one in answer["tasks"]:
        by_set[None if answer["task"] is not None else one["set"]].append(one)
    for number, set_name in enumerate(sorted(by_set, key=lambda name: (name is None, name))):
        if len(by_set) > 1:
            say(("\n" if number else "") + (f"set {set_name}" if set_name is not None else "in no set"))
        known = {one["task"]: one for one in by_set[set_name]}
        rows = [(line, *_cells(known[task], whole)) for line, task, whole in tree(known, answer["edges"])]
        api.table(("TASK", "STATE", "SINCE", "WHAT"), rows, "no tasks")
    if alone := answer.get("alone"):
        say("\nwithout others before or after them" if answer["tasks"] else "none comes after another one")
        api.table(("TASK", "STATE", "SINCE", "WHAT"), [(one["task"], *_cells(one, True)) for one in alone], "")
        if answer["alone_left_out"]:
            say(f"and {answer['alone_left_out']} more")
    elif not answer["tasks"]:
        say("no task comes after another one; see: rota apply, and `after` in a definition")
    if answer["left_out"]:
        say(f"and {answer['left_out']} more")
    if answer["occurrence"] is None and answer["occurrences"]:
        say(f"\nits latest occurrences: {', '.join(_named(one) for one in answer['occurrences'][:3])}")
        say(f"see one on its way: rota graph {answer['task']} --at {answer['occurrences'][0]['at']}")


def _named(occurrence: Mapping[str, Any]) -> str:
    return str(occurrence["at"]) + (" (a rerun)" if occurrence["rerun"] else "")


def _cells(one: dict[str, Any], whole: bool) -> tuple[object, ...]:
    if not whole:
        return "", "", "(see its other line)"
    return one["state"].replace("_", " "), ago(one["since"]), one["detail"]


def tree(tasks: Mapping[str, Any], edges: list[dict[str, Any]]) -> Iterator[tuple[str, str, bool]]:
    """Yield the lines of a tree, each with its task, and whether what comes after the task is below this line.

    It is below the task's last parent, the one with the highest `layer` and then the first name, and below no other.

    >>> edges = [{"from": "a", "to": "c", "on": "succeeded"}, {"from": "b", "to": "c", "on": "failed"}]
    >>> [line for line, _, _ in tree({"a": {"layer": 0}, "b": {"layer": 1}, "c": {"layer": 2}}, edges)]
    ['a', '└─ c', 'b', '└─ c (once it has failed)']
    """
    children: dict[str, list[dict[str, Any]]] = defaultdict(list)
    last_parent: dict[str, str] = {}
    for edge in edges:
        one, other = edge["from"], edge["to"]
        if one in tasks and other in tasks:
            children[one].append(edge)
            known = last_parent.get(other, one)
            last_parent[other] = min(one, known, key=lambda name: (-tasks[name]["layer"], name))
    # The lines that are still to come, the next one last: the task, its parent, what stands before its name, before
    # the names of those below it, and after its name.
    left = [(task, "", "", "", "") for task in reversed(list(tasks)) if task not in last_parent]
    while left:
        task, parent, before, below, after = left.pop()
        whole = last_parent.get(task, "") == parent
        yield f"{before}{task}{after}", task, whole
        of_it = children[task] if whole else []
        for number, edge in reversed(list(enumerate(of_it, 1))):
            last = number == len(of_it)
            on = "" if edge["on"] == "succeeded" else f" (once it has {edge['on']})"
            left.append((edge["to"], task, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "), on))


def mermaid_lines(answer: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a Mermaid flowchart of a graph.

    >>> a, b = ({"task": name, "state": "new"} for name in "ab")
    >>> list(mermaid_lines({"tasks": [a, b], "edges": [{"from": "a", "to": "b", "on": "failed"}]}))
    ['flowchart LR', '  t0["a<br>new"]', '  t1["b<br>new"]', '  t0 -. failed .-> t1']
    """
    yield "flowchart LR"
    ids = {one["task"]: f"t{number}" for number, one in enumerate(answer["tasks"])}
    for one in answer["tasks"]:
        yield f'  {ids[one["task"]]}["{one["task"]}<br>{one["state"].replace("_", " ")}"]'
    for edge in answer["edges"]:
        arrow = "-->" if edge["on"] == "succeeded" else f"-. {edge['on']} .->"
        yield f"  {ids[edge['from']]} {arrow} {ids[edge['to']]}"
