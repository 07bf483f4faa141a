"""Files of tasks, and what is printed of one."""

import json
from pathlib import Path
from typing import Any

import click
import pytest

from node.cli.api import Api
from node.cli.applying import apply_command
from node.cli.calendar_days import days_of_events
from node.cli.task_files import LIST_BYTES_MAX, contents_of
from node.cli.tasks import _print_where, tasks_command
from node.client import ApiProblem, Client
from testkit.servers.api_server import Request, Response, api_server, as_json

TASKS = [{"name": "a", "kind": "x", "schedule": {"at": "2026-12-01T02:00:00Z"}}, {"name": "b", "kind": "x"}]


def definitions(file: Path) -> list[dict[str, Any]]:
    return [task.definition for task in contents_of([str(file)]).tasks]


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
    assert definitions(tmp_path / "tasks") == TASKS


def test_json_is_not_read_as_yaml(tmp_path: Path) -> None:
    """As YAML, ten thousand tasks took a minute, and this number is text."""
    (tmp_path / "tasks").write_text('[{"name": "a", "weight": 1e3}]')
    assert definitions(tmp_path / "tasks") == [{"name": "a", "weight": 1000.0}]


@pytest.mark.parametrize("text", ["a: [", "just words", "[1, 2]", '{"name": "a"'])
def test_a_file_without_tasks_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tasks").write_text(text)
    with pytest.raises(click.UsageError):
        contents_of([str(tmp_path / "tasks")])


def test_pools_stand_beside_tasks_in_any_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("pools: {dumps: 2, 'table:orders': 1}\n---\nname: a\nkind: x\n")
    (tmp_path / "b.json").write_text('[{"name": "b", "kind": "x"}, {"pools": {"dumps": 2, "none": 0}}]')
    found = contents_of([str(tmp_path)])
    assert [task.definition["name"] for task in found.tasks] == ["a", "b"]
    assert found.pools == {"dumps": (2, None), "table:orders": (1, None), "none": (0, None)}


@pytest.mark.parametrize(
    ("pools", "fault"),
    [
        ("[dumps]", "pools is a table of names and numbers, as {dumps: 2}"),
        ("{dumps: null}", "the pool dumps is null: `rota pools remove dumps` removes it"),
        ("{dumps: true}", "not True"),
        ("{dumps: 1.0}", "not 1.0"),
        ("{dumps: -1}", "not -1"),
        ("{dumps: 1000001}", "from 0 to 1000000, not 1000001"),
        ("{'a,b': 1}", "'a,b' is no name of a pool"),
        ("{dumps: 1}\n---\npools: {dumps: 2}", "the pool dumps is 2 here, and 1 elsewhere"),
        ("{dumps: 1}\n---\nset: a\npools: {dumps: 1}", "the pool dumps is of the set a here, and of no set elsewhere"),
        ("{dumps: 1}\nset: [a]", "is not the name of a set"),
    ],
)
def test_pools_that_are_no_numbers_are_refused(tmp_path: Path, pools: str, fault: str) -> None:
    (tmp_path / "a.yaml").write_text(f"pools: {pools}\n")
    with pytest.raises(click.UsageError) as refused:
        contents_of([str(tmp_path / "a.yaml")])
    assert fault in str(refused.value)


def test_calendars_stand_beside_tasks_in_any_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "calendars: {closing: [2026-12-24, 2026-12-31..2027-01-01], party: {ics: days/party.ics}}\npools: {dumps: 2}\n"
    )
    (tmp_path / "days").mkdir()
    (tmp_path / "days/party.ics").write_text(PARTY)
    found = contents_of([str(tmp_path / "a.yaml")])
    assert {name: one.days for name, one in found.calendars.items()} == {
        "closing": ("2026-12-24", "2026-12-31", "2027-01-01"),
        "party": ("2026-07-01", "2026-07-10", "2026-07-11", "2026-08-01", "2026-08-02", "2026-08-03"),
    }
    assert (found.pools, found.tasks) == ({"dumps": (2, None)}, [])


EVENT = "BEGIN:VEVENT\nUID:{}\n{}\nEND:VEVENT\n"
EVENTS = (
    "DTSTART;VALUE=DATE:20260701",
    "DTSTART;VALUE=DATE:20260710\nDTEND;VALUE=DATE:20260712",
    "DTSTART;VALUE=DATE:20260801\nDURATION:P3D",
)


def party(*events: str) -> str:
    found = "".join(EVENT.format(number, text) for number, text in enumerate(events))
    return f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:x\n{found}END:VCALENDAR\n"


PARTY = party(*EVENTS)


@pytest.mark.parametrize(
    ("calendars", "fault"),
    [
        ("[closing]", "calendars is a table of names and dates"),
        ("{closing: 3}", "the calendar closing is a list of dates"),
        ("{closing: [soon]}", "'soon' is no date"),
        ("{closing: [2026-12-24..2026-12-01]}", "ends before it begins"),
        ("{closing: [2026-01-01..2046-01-01]}", "more than 2000 days"),
        ("{closing: [9999-01-01]}", "is not from 1970 to 9998"),
        ("{holidays/DE: [2026-12-24]}", "holidays/ is kept for public holidays"),
        ("{'a b': [2026-12-24]}", "'a b' is not the name of a calendar"),
        ("{closing: {ics: none.ics}}", "No such file"),
        ("{closing: [2026-12-24]}\n---\ncalendars: {closing: []}", "other days here than in another place"),
        ("{closing: []}\n---\nset: a\ncalendars: {closing: []}", "is of the set a here, and of no set elsewhere"),
    ],
)
def test_calendars_that_have_no_days_are_refused(tmp_path: Path, calendars: str, fault: str) -> None:
    (tmp_path / "a.yaml").write_text(f"calendars: {calendars}\n")
    with pytest.raises(click.UsageError) as refused:
        contents_of([str(tmp_path / "a.yaml")])
    assert fault in str(refused.value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("hello", "is no iCalendar file"),
        (party("DTSTART:20260701T100000Z"), "is not of whole days"),
        (party("DTSTART;VALUE=DATE:20260701\nRRULE:FREQ=YEARLY\nSUMMARY:New Year"), "'New Year' of x.ics recurs"),
        (party("SUMMARY:nothing"), "is not of whole days"),
        (party("DTSTART;VALUE=DATE:20260701\nDTEND;VALUE=DATE:20260629"), "ends before it begins"),
        (party("DTSTART;VALUE=DATE:20260701\nDURATION:-P3D"), "ends before it begins"),
        (party("DTSTART;VALUE=DATE:20260701\nDURATION:PT36H"), "is not of whole days"),
        (party("DTSTART;VALUE=DATE:20260701\nDURATION:3 days"), "is not of whole days"),
        (party("DTSTART;VALUE=DATE:20260701\nDTEND;VALUE=DATE:2026-07-03"), "is not of whole days"),
        (party("DTSTART;VALUE=DATE:20260701\nDTEND;VALUE=DATE:00010101"), "is not of whole days"),
        (party("DTSTART;VALUE=DATE:20260701" + 2 * "\nDTEND;VALUE=DATE:20260703"), "is not of whole days"),
        (party("DTSTART;VALUE=DATE:99991231"), "is not of whole days"),
        (party(), "x.ics has no events"),
    ],
)
def test_events_that_are_no_days_are_refused_by_name(text: str, fault: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        list(days_of_events(text, "x.ics"))
    assert fault in str(refused.value)


def test_an_event_that_was_cancelled_has_no_days() -> None:
    found = days_of_events(
        party("DTSTART;VALUE=DATE:20260701\nSTATUS:CANCELLED", "DTSTART;VALUE=DATE:20260702"), "x.ics"
    )
    assert [str(day) for day in found] == ["2026-07-02"]


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
