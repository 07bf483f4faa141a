"""`rota backfill`: what it asks of the API, and what it prints."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from node.cli.backfills import backfill_command
from node.cli.runs import runs_command
from node.cli.tasks import show_command
from node.client import Client
from testkit.servers.api_server import Request, Response, api_server, as_json

ONE: dict[str, Any] = {
    "number": 7,
    "task": "a",
    "from": "2026-01-01T00:00:00Z",
    "to": "2026-01-02T00:00:00Z",
    "status": "paused",
    "why": "5 occurrences in a row failed",
    "downstream": True,
    "parallel": 2,
    "newest_first": False,
    "total": 24,
    "succeeded": 3,
    "failed": 5,
    "skipped": 0,
    "left": 16,
    "per_hour": 30.0,
    "left_s": 1920.0,
    "asked_by": None,
    "asked_at": "2026-01-02T00:00:00Z",
    "ended_at": None,
    "in_flight": [{"at": "2026-01-01T08:00:00Z", "runs": ["a~8", "b~8"]}],
    "failures": [{"at": "2026-01-01T07:00:00Z", "run_id": "a~7"}],
}
PLAN = {
    "task": "a",
    "total": 24,
    "first": "2026-01-01T00:00:00Z",
    "last": "2026-01-01T23:00:00Z",
    "tasks": ["a", "b"],
    "one_at_a_time": ["a"],
    "estimate_s": 1920.0,
}


def rota(*words: str) -> tuple[str, list[Request]]:
    """Run the command; what it prints, and what it asks for."""
    asked: list[Request] = []

    def answer(request: Request) -> Response:
        asked.append(request)
        if request.method == "POST" and json.loads(request.body or b"{}").get("dry_run"):
            return as_json(PLAN)
        return as_json({"items": [ONE]} if request.path == "/v1/backfills" else ONE)

    with api_server(answer) as url:
        found = CliRunner().invoke(backfill_command, list(words), obj=Client([url]), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output, asked


def test_a_task_may_be_named_at_once() -> None:
    for words in (["a"], ["start", "a"]):
        output, [request] = rota(*words, "--from", "2026-01-01T00:00:00Z", "--parallel", "2", "--downstream")
        assert (request.method, request.path) == ("POST", "/v1/tasks/a/backfills")
        assert json.loads(request.body) == {"from": "2026-01-01T00:00:00Z", "parallel": 2, "downstream": True}
        assert output == "backfill 7: 24 times of a; see it: rota backfill show 7\n"


def test_a_dry_run_says_what_it_would_do() -> None:
    output, [request] = rota("a", "--from", "2026-01-01T00:00:00Z", "--dry-run")
    assert json.loads(request.body)["dry_run"] is True
    assert "32 min" in output and "a, b" in output


def test_backfills_are_listed_and_shown() -> None:
    assert "8 of 24" in rota("list")[0]
    shown, [request] = rota("show", "7")
    assert request.path == "/v1/backfills/7"
    assert "paused (5 occurrences in a row failed)" in shown
    assert "8 of 24, 30 an hour, 32 min left" in shown
    assert "a~8, b~8" in shown and "a~7" in shown


@pytest.mark.parametrize(
    ("word", "method", "target"),
    [
        ("pause", "POST", "/v1/backfills/7/pause"),
        ("resume", "POST", "/v1/backfills/7/resume"),
        ("cancel", "DELETE", "/v1/backfills/7"),
    ],
)
def test_a_backfill_is_changed(word: str, method: str, target: str) -> None:
    output, [request] = rota(word, "7")
    assert (request.method, request.path, output) == (method, target, "backfill 7 is paused\n")


def test_runs_name_the_backfill_that_they_are_of() -> None:
    run = {"run_id": "a~7", "state": "failed", "node": "n", "attempt": 1, "finished_at": None, "error": "x"}
    runs = [{**run, "attempts": [], "backfill": number} for number in (7, None)]

    def answer(request: Request) -> Response:
        return as_json({"items": runs} if request.path == "/v1/runs" else runs[0])

    with api_server(answer) as url:
        client = Client([url])
        listed = CliRunner().invoke(runs_command, [], obj=client, catch_exceptions=False).output.splitlines()
        shown = CliRunner().invoke(show_command, ["a~7"], obj=client, catch_exceptions=False).output
        runs = runs[1:]
        without = CliRunner().invoke(runs_command, [], obj=client, catch_exceptions=False).output
    assert listed[0].split() == ["RUN", "STATE", "NODE", "TRY", "ENDED", "BACKFILL", "ERROR"]
    assert ["7" in line.split() for line in listed[1:]] == [True, False]
    assert "BACKFILL" not in without
    assert shown.endswith("# of a backfill: rota backfill show 7\n")
