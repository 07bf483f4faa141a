"""Commands for tasks: list and show them, ask where they run, pause and delete them."""

from typing import Any, Final

import click

from node.cli.api import Api, ago, api_command
from node.cli.task_files import definition
from node.cli.text import say
from node.cli.why import state_of
from node.client import path
from tasks.definition.yaml_text import as_yaml

OF_RUNS_ONLY: Final = "~"
"""The character that each run has in its id, and no task in its name."""


@click.command("tasks")
@click.option("--kind", help="Only tasks of this kind.")
@click.option("--owner", help="Only tasks that this node owns.")
@click.option("--set", "set_name", help="Only tasks of this set of files.")
@click.option("--late", is_flag=True, help="Only tasks that have a breached deadline.")
@api_command
def tasks_command(api: Api, kind: str | None, owner: str | None, set_name: str | None, late: bool) -> None:
    """List all tasks with their owners and breached deadlines, and why a task is held, unless somebody asked it to wait
    (see rota why).
    """
    only_late = "true" if late else None
    items = list(api.client.items("/v1/tasks", kind=kind, owner=owner, set=set_name, late=only_late))
    api.show(
        {"items": items, "next": None},
        lambda: api.table(
            ("TASK", "KIND", "OWNER", "NEXT", "LAST", "STATE"),
            (
                (
                    item["name"],
                    item["kind"],
                    "each" if item.get("each") else item["owner"],
                    ago(item["next_fire_at"]) if not item.get("next_held") else f"{ago(item['next_fire_at'])} (held)",
                    item["last"] and f"{item['last']['state']} {ago(item['last']['finished_at'])}",
                    state_of(item),
                )
                for item in items
            ),
            nothing_listed(kind, owner, set_name, late=late),
        ),
    )


def nothing_listed(kind: str | None, owner: str | None, set_name: str | None, *, late: bool) -> str:
    """Return the sentence for an empty list: there are no tasks, or none matches the filters.

    >>> nothing_listed(None, None, None, late=False)
    'no tasks are registered; register some with: rota apply -f FILE'
    >>> nothing_listed(None, None, None, late=True)
    'no task is late'
    >>> nothing_listed("backup", "node-1", "bi", late=True)
    'no task of kind backup, owned by node-1, of the set bi is late'
    >>> nothing_listed("backup", None, None, late=False)
    'no task of kind backup is registered'
    """
    asked = {"of kind": kind, "owned by": owner, "of the set": set_name}
    which = ", ".join(f"{words} {value}" for words, value in asked.items() if value is not None)
    if not which and not late:
        return "no tasks are registered; register some with: rota apply -f FILE"
    return f"no task {which} is".replace("  ", " ") + (" late" if late else " registered")


@click.command("show")
@click.argument("name", metavar="TASK|RUN")
@click.option(
    "--at",
    metavar="TIME",
    help="Show what the task's params are for its first occurrence at this time or later, such as "
    "2026-11-27T02:00:00Z, with each {{ ... }} of its template replaced.",
)
@api_command
def show_command(api: Api, name: str, at: str | None) -> None:
    """Show a task as YAML that `rota apply` accepts, with its state in comments; or a run, by its id, as YAML.

    A run shows the params that were given for it, such as by `rota run --param`, or made for it by the template of its
    task; without any, it has the task's params.
    """
    if at is not None:
        _show_params(api, name, at)
        return
    if OF_RUNS_ONLY in name:
        run = api.client.get(path("v1", "runs", name))
        shown = as_yaml({field: value for field, value in run.items() if value is not None})
        if run.get("backfill"):
            shown += f"# of a backfill: rota backfill show {run['backfill']}\n"
        api.show(run, lambda: say(shown.rstrip()))
        return
    task = api.client.get(path("v1", "tasks", name))
    api.show(task, lambda: click.echo(_as_yaml(task) + _not_at_its_times(api, task), nl=False))


def _not_at_its_times(api: Api, task: dict[str, Any]) -> str:
    """Say in comments on which of the next days a task is not due, by its calendars, and which blackouts hold it."""
    if not task.get("calendar") and not task.get("next_held"):
        return ""
    found = api.client.get(path("v1", "tasks", task["name"], "times"))
    lines = [one["detail"] for one in found["left_out"]]
    lines += [f"due at {one['at']}, {one['detail']}" for one in found.get("held", [])]
    if found["known_until"] is not None:
        lines.append(f"its calendars are known until {found['known_until']}")
    return "".join(f"# {line}\n" for line in lines)


def _show_params(api: Api, name: str, at: str) -> None:
    if OF_RUNS_ONLY in name:
        raise click.UsageError("--at is about an occurrence of a task: name the task")
    found = api.client.get(path("v1", "tasks", name, "params"), at=at)
    start = found["window_start"]
    window = "no window" if start is None else f"window from {start} to {found['window_end']}"
    api.show(found, lambda: say(f"# {name} at {found['nominal']}, {window}\n{as_yaml(found['params']).rstrip()}"))


def _as_yaml(task: dict[str, Any]) -> str:
    spec = definition(task)
    state = {name: value for name, value in task.items() if name not in spec}
    comments = "".join(f"# {line}\n" for line in as_yaml(state).splitlines())
    return as_yaml(spec) + comments


@click.command("where")
@click.argument("name")
@click.option("--without", multiple=True, metavar="NODE", help="Answer as if this node were down.")
@api_command
def where_command(api: Api, name: str, without: tuple[str, ...]) -> None:
    """Show which node owns a task and why, and where the task runs now.

    The task bootstrap/NODE feeds NODE with the finished runs that NODE lacks.
    """
    answer = api.client.get(path("v1", "tasks", name, "owner"), without=",".join(without) or None)
    api.show(answer, lambda: _print_where(api, answer, without))


def _print_where(api: Api, answer: dict[str, Any], without: tuple[str, ...]) -> None:
    condition = f" without {', '.join(without)}" if without else ""
    if (members := answer.get("members")) is not None and any(told["code"] == "each" for told in answer["standing"]):
        api.fields(
            {
                "task": answer["task"],
                "owner": f"{answer['owner']}, which only makes the runs" if answer["owner"] else "no member may run it",
                "now": "; ".join(told["detail"] for told in answer["standing"]),
                "runs on": ", ".join(f"{run['node']} ({run['run_id']})" for run in answer["running_on"]) or None,
                **{part["member"]: _fares(part) for part in members},
                "next": _next(answer),
            }
        )
        return
    api.fields(
        {
            "task": answer["task"],
            f"owner{condition}": answer["owner"] or "no member may run it",
            "now": "; ".join(told["detail"] for told in answer["standing"]) or None,
            "runs on": ", ".join(f"{run['node']} ({run['run_id']})" for run in answer["running_on"]) or None,
            "then": " > ".join(answer["preference"]) or None,
            "standbys": ", ".join(answer["standbys"]) or None,
            **({"waits": answer["waiting"]} if answer["waiting"] else {}),
            "because": ", ".join(f"{step['node'] or 'vacant slot'}: {step['verdict']}" for step in answer["because"]),
            "next": _next(answer),
        }
    )


def _next(answer: dict[str, Any]) -> str | None:
    """Say when a task is due next, and what holds it then.

    >>> _next({"next_fire_at": None})
    """
    held = answer.get("next_held")  # older nodes do not send it
    due = ago(answer["next_fire_at"])
    return f"{due} ({answer['next_fire_at']}), {held['detail']}" if held else due


def _fares(part: dict[str, Any]) -> str:
    """Say how a task with `each` fares on a member.

    >>> _fares({"last": None, "failing": False, "degraded": None})
    'no run has ended there'
    """
    last = part["last"]
    if last is None:
        return "no run has ended there"
    said = last["error"] or part["degraded"]
    return f"{last['state']} {ago(last['finished_at'])}" + (f": {said}" if said else "")


@click.command("pause")
@click.argument("name")
@api_command
def pause_command(api: Api, name: str) -> None:
    """Pause a task: it does not fall due until it is resumed."""
    answer = api.client.call("POST", path("v1", "tasks", name, "pause")).json
    api.show(answer, f"{name} is paused")


@click.command("resume")
@click.argument("name")
@api_command
def resume_command(api: Api, name: str) -> None:
    """Resume a paused task; its schedule continues from now."""
    answer = api.client.call("POST", path("v1", "tasks", name, "resume")).json
    api.show(answer, f"{name} is resumed")


@click.command("delete")
@click.argument("name")
@click.option("--with-children", is_flag=True, help="Also if other tasks come after it; nothing makes them due then.")
@api_command
def delete_command(api: Api, name: str, with_children: bool) -> None:
    """Delete a task and cancel its runs."""
    query = {"with_children": "true"} if with_children else None
    api.client.call("DELETE", path("v1", "tasks", name), query=query)
    api.show(None, f"{name} is deleted")
