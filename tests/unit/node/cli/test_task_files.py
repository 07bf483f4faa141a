"""Files of tasks, and what is printed of one."""

import json
from pathlib import Path

import click
import pytest

from node.cli.api import Api
from node.cli.applying import apply_command
from node.cli.task_files import LIST_BYTES_MAX, _specs
from node.cli.tasks import _print_where, tasks_command
from node.client import ApiProblem, Client
from testkit.servers.api_server import Request, Response, api_server, as_json

TASKS = [{"name": "a", "kind": "x", "schedule": {"at": "2026-12-01T02:00:00Z"}}, {"name": "b", "kind": "x"}]


@pytest.mark.parametrize(
    "text",
    [
        '[{"name": "a", "kind": "x", "schedule": {"at": "2026-12-01T02:00:00Z"}}, {"name": "b", "kind": "x"}]',
        "- {name: a, kind: x, schedule: {at: 2026-12-01T02:00:00Z}}\n- name: b\n  kind: x\n",
        "# two\nname: a\nkind: x\nschedule: {at: 2026-12-01T02:00:00Z}\n---\nname: b\nkind: x\n---\n",
    ],
    ids=["JSON", "a YAML list", "YAML documents"],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_tasks_come_as_json_or_yaml_and_a_time_stays_what_was_written(tmp_path: Path, text: str, encoding: str) -> None:
    (tmp_path / "tasks").write_text(text, encoding=encoding)
    assert list(_specs(str(tmp_path / "tasks"))) == TASKS


def test_json_is_not_read_as_yaml(tmp_path: Path) -> None:
    """As YAML, ten thousand tasks took a minute, and this number is text."""
    (tmp_path / "tasks").write_text('[{"name": "a", "weight": 1e3}]')
    assert list(_specs(str(tmp_path / "tasks"))) == [{"name": "a", "weight": 1000.0}]


@pytest.mark.parametrize("text", ["a: [", "just words", "[1, 2]", '{"name": "a"'])
def test_a_file_without_tasks_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tasks").write_text(text)
    with pytest.raises(click.UsageError):
        list(_specs(str(tmp_path / "tasks")))


def test_where_says_why_something_waits(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {
        "task": "a",
        "owner": "n1",
        "running_on": [],
        "preference": ["n1"],
        "standbys": [],
        "because": [{"node": "n1", "verdict": "chosen"}],
        "next_fire_at": None,
        "waiting": "n1 runs 3 attempts already (ROTA_MAX_RUNS)",
        "standing": [
            {"code": "due", "detail": "due since 10:00"},
            {"code": "not_due", "detail": "not due until 11:00"},
        ],
    }
    _print_where(Api(as_json=False), answer, ())
    said = capsys.readouterr().out
    assert "waits     n1 runs 3 attempts already (ROTA_MAX_RUNS)" in said
    assert "now       due since 10:00; not due until 11:00" in said


def test_a_refused_task_is_named_with_its_file(tmp_path: Path) -> None:
    """The API names it by its place in the list that was sent, which spans files and is sent in parts."""
    (tmp_path / "one.yaml").write_text(f"name: first\nkind: x\nparams: {{fills: {'x' * LIST_BYTES_MAX}}}\n")
    (tmp_path / "two.yaml").write_text("- {name: second}\n- {kind: x}\n")
    errors = (("[0].kind", "is missing"), ("[1].name", "is missing"), ("", "another"))

    def answer(request: Request) -> Response:
        if json.loads(request.body)[0]["name"] == "first":
            put = {"name": "first", "change": "created", "version": 1, "changes": [], "warnings": []}
            return as_json({"items": [put]})
        listed = [{"field": name, "message": message} for name, message in errors]
        return as_json({"type": "", "title": "Some fields are not right", "status": 422, "errors": listed}, status=422)

    words = ["-f", str(tmp_path / "one.yaml"), "-f", str(tmp_path / "two.yaml")]
    with api_server(answer) as url, pytest.raises(ApiProblem) as raised:
        apply_command.main(words, standalone_mode=False, obj=Client([url]))
    assert str(raised.value).splitlines() == [
        "Some fields are not right",
        f"  {tmp_path}/two.yaml: task 'second': kind: is missing",
        f"  {tmp_path}/two.yaml: task number 2: name: is missing",
        "  another",
    ]


def test_tasks_says_in_short_what_holds_a_task(capsys: pytest.CaptureFixture[str]) -> None:
    task = {"name": "a", "kind": "copy", "owner": "n1", "next_fire_at": None, "last": None, "paused": False}
    items = [
        {**task, "enabled": True, "held": {"code": "no_label", "detail": "no member has it", "until": None}},
        {**task, "name": "b", "enabled": True, "held": None},
        {**task, "name": "c", "enabled": False},
    ]
    with api_server(lambda _: as_json({"items": items, "next": None})) as url:
        tasks_command.main([], standalone_mode=False, obj=Client([url]))
    assert [line.split("  ")[-1].strip() for line in capsys.readouterr().out.splitlines()] == [
        "STATE",
        "enabled, held: no label",
        "enabled",
        "disabled",
    ]
