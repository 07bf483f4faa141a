"""Tasks: register them, look at them, ask where they run, pause and delete them."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, get_type_hints

import click
import yaml

from node.cli.api import Api, ago, api_command
from node.cli.reading import documents
from node.cli.text import input_text
from node.client import path
from node.http.responses.tasks import TaskView
from tasks.spec import Spec

LIST_BYTES_MAX: Final = 900_000
DEFAULTS_BYTES: Final = 300
"""A list that is longer is sent in parts: one body may have 1 MiB, and so may what it becomes when every default is
written out, which adds as much to each task.
"""

STATE_FIELDS: Final = frozenset(get_type_hints(TaskView)) - frozenset(Spec.model_fields)
"""What the API shows of a task besides its definition."""


@click.command("apply")
@click.option(
    "-f",
    "files",
    required=True,
    multiple=True,
    metavar="FILE",
    help="A YAML or JSON file with one task, a list of them, or several documents; - for standard input. "
    "May be given several times: all files are checked and sent together.",
)
@click.option("--dry-run", is_flag=True, help="Check it, and say what would change; change nothing.")
@api_command
def apply_command(api: Api, files: tuple[str, ...], dry_run: bool) -> None:
    """Register tasks, or change them."""
    specs: list[dict[str, Any]] = []
    for file in files:
        found = list(_specs(file))
        if not found:
            raise click.UsageError(f"{file} holds no task")
        specs += found
    # As text: a name may be anything yet, a list too, and the API says what is wrong with it.
    names = Counter(str(spec["name"]) for spec in specs if "name" in spec)
    if twice := sorted(name for name, count in names.items() if count > 1):
        where = "one file" if len(files) == 1 else "these files"
        raise click.UsageError(f"{', '.join(files)}: registered more than once in {where}: {', '.join(twice)}")
    answers: list[Any] = []
    for part in _parts(specs):
        query = {"dry_run": "true"} if dry_run else None
        answers += api.client.call("POST", "/v1/tasks", body=part, query=query).json["items"]
    lines = [line for item in answers for line in _put_lines(item, dry_run)]
    api.show({"items": answers, "next": None}, "\n".join(lines))


def _put_lines(item: dict[str, Any], dry_run: bool) -> Iterator[str]:
    """What became of a task, or would: one line, and one for each field that differs and for each warning."""
    yield f"{item['name']}: {'would be ' if dry_run else ''}{item['change']} (version {item['version']})"
    for change in item["changes"]:
        yield f"  {change['field']}: {json.dumps(change['before'])} -> {json.dumps(change['after'])}"
    for warning in item["warnings"]:
        yield f"  warning: {warning}"


def _specs(file: str) -> Iterator[dict[str, Any]]:
    for document in documents(file, input_text(file)):
        for spec in document if isinstance(document, list) else [document]:
            if spec is None:
                continue
            if not isinstance(spec, dict):
                raise click.UsageError(f"{file}: a task is a mapping with a name and a kind, not {spec!r}")
            yield definition(spec)


def definition(task: dict[str, Any]) -> dict[str, Any]:
    """A task without its state, if it is one as the API shows it; anything else as it is.

    >>> definition({"name": "a", "kind": "command", "version": 3, "registered_at": "2026-11-22T10:00:00Z"})
    {'name': 'a', 'kind': 'command'}
    >>> definition({"name": "a", "kind": "command", "version": 3})
    {'name': 'a', 'kind': 'command', 'version': 3}
    """
    if not {"version", "registered_at"} <= task.keys():
        return task
    return {name: value for name, value in task.items() if name not in STATE_FIELDS}


def _parts(specs: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Lists in order, each short enough for one body."""
    part: list[dict[str, Any]] = []
    size = 0
    for spec in specs:
        length = len(json.dumps(spec)) + DEFAULTS_BYTES
        if part and size + length > LIST_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(spec)
        size += length
    if part:
        yield part


@click.command("tasks")
@click.option("--kind", help="Only those of this kind.")
@click.option("--owner", help="Only those that this node owns.")
@api_command
def tasks_command(api: Api, kind: str | None, owner: str | None) -> None:
    """All tasks, with their owners."""
    items = list(api.client.items("/v1/tasks", kind=kind, owner=owner))
    api.show(
        {"items": items, "next": None},
        lambda: api.table(
            ("TASK", "KIND", "OWNER", "NEXT", "LAST", "STATE"),
            (
                (
                    item["name"],
                    item["kind"],
                    item["owner"],
                    ago(item["next_fire_at"]),
                    item["last"] and f"{item['last']['state']} {ago(item['last']['finished_at'])}",
                    "paused" if item["paused"] else "enabled" if item["enabled"] else "disabled",
                )
                for item in items
            ),
            "no tasks are registered: rota apply -f FILE",
        ),
    )


@click.command("show")
@click.argument("name")
@api_command
def show_command(api: Api, name: str) -> None:
    """A task's definition and state: as YAML that `rota apply` takes, the state in comments."""
    task = api.client.get(path("v1", "tasks", name))
    api.show(task, lambda: click.echo(_as_yaml(task), nl=False))


def _as_yaml(task: dict[str, Any]) -> str:
    spec = definition(task)
    state = {name: value for name, value in task.items() if name not in spec}
    comments = "".join(f"# {line}\n" for line in _yaml(state).splitlines())
    return _yaml(spec) + comments


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


@click.command("where")
@click.argument("name")
@click.option("--without", multiple=True, metavar="NODE", help="Were this node down.")
@api_command
def where_command(api: Api, name: str, without: tuple[str, ...]) -> None:
    """Which node owns a task, and why; where it runs now."""
    answer = api.client.get(path("v1", "tasks", name, "owner"), without=",".join(without) or None)
    api.show(answer, lambda: _print_where(api, answer, without))


def _print_where(api: Api, answer: dict[str, Any], without: tuple[str, ...]) -> None:
    condition = f" without {', '.join(without)}" if without else ""
    api.fields(
        {
            "task": answer["task"],
            f"owner{condition}": answer["owner"] or "nobody may run it",
            "now": "; ".join(told["detail"] for told in answer["standing"]) or None,
            "runs on": ", ".join(f"{run['node']} ({run['run_id']})" for run in answer["running_on"]) or None,
            "then": " > ".join(answer["preference"]) or None,
            "standbys": ", ".join(answer["standbys"]) or None,
            **({"waits": answer["waiting"]} if answer["waiting"] else {}),
            "because": ", ".join(f"{step['node'] or 'vacant slot'}: {step['verdict']}" for step in answer["because"]),
            "next": ago(answer["next_fire_at"]),
        }
    )


@click.command("pause")
@click.argument("name")
@api_command
def pause_command(api: Api, name: str) -> None:
    """Let nothing of a task fall due."""
    answer = api.client.call("POST", path("v1", "tasks", name, "pause")).json
    api.show(answer, f"{name} is paused")


@click.command("resume")
@click.argument("name")
@api_command
def resume_command(api: Api, name: str) -> None:
    """Let a task fall due again; its schedule counts from now."""
    answer = api.client.call("POST", path("v1", "tasks", name, "resume")).json
    api.show(answer, f"{name} is resumed")


@click.command("delete")
@click.argument("name")
@api_command
def delete_command(api: Api, name: str) -> None:
    """Delete a task and cancel its runs."""
    api.client.call("DELETE", path("v1", "tasks", name))
    api.show(None, f"{name} is deleted")
