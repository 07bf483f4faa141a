"""How what is wrong with a body is told (DESIGN.md, section 9)."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from node.http.problems import CATALOGUE, MAX_ERRORS, Problem, field_errors, invalid
from tasks.field_errors import FieldError
from tasks.spec import Spec


def _told(given: Any, of: Any = Spec) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(of).validate_python(given)
    return {error.field: error.message for error in field_errors(caught.value)}


def _spec(**fields: Any) -> dict[str, Any]:
    return {"name": "a", "kind": "copy", **fields}


@pytest.mark.parametrize(
    ("schedule", "field", "word"),
    [
        ({"cron": "0 0 30 2 *"}, "schedule.cron", "never fires"),
        ({"cron": "nonsense"}, "schedule.cron", "five fields"),
        ({"cron": "0 3 * * *", "timezone": "Mars/Base"}, "schedule.timezone", "time zone"),
        ({"cron": "0 3 * * *", "every_s": 4}, "schedule.every_s", "does not go with cron"),
        ({"every_s": 0}, "schedule.every_s", "greater than or equal to 0.1"),
        ({"every_s": "soon"}, "schedule.every_s", "number"),
        ({"at": "yesterday"}, "schedule.at", "datetime"),
        ({"at": "2026-12-01T00:00:00"}, "schedule.at", "timezone"),
        ({"at": "9999-12-31T23:59:59-14:00"}, "schedule.at", "the year 9999"),
        ({"continuous": False}, "schedule.continuous", "True"),
        ({"often": True}, "schedule", "must be one of"),
        ({}, "schedule", "must be one of"),
        (7, "schedule", "must be one of"),
    ],
)
def test_a_schedule_is_told_by_the_form_that_was_meant(schedule: Any, field: str, word: str) -> None:
    told = _told(_spec(schedule=schedule))
    assert list(told) == [field]
    assert word in told[field]


def test_fields_of_a_list_are_named_by_position() -> None:
    told = _told([_spec(), _spec(retry={"attempts": 0}), _spec(schedule={"cron": "x"}, weight=0)], list[Spec])
    assert set(told) == {"[1].retry.attempts", "[2].schedule.cron", "[2].weight"}


def test_names_are_explained_and_strange_fields_are_named() -> None:
    told = _told({"name": "a/b", "kind": "copy", "retrys": 3})
    assert "no slash" in told["name"]
    assert told["retrys"] == "there is no such field"
    assert _told({"name": "a"})["kind"] == "is missing"


def test_a_problem_document_says_what_rfc_9457_asks_for() -> None:
    response = invalid([FieldError("a.b", "is missing")]).response()
    assert (response.status, response.content_type) == (422, "application/problem+json")
    assert isinstance(response.body, bytes)
    assert json.loads(response.body) == {
        "type": "urn:rota:problem:invalid",
        "title": "Some fields are not right",
        "status": 422,
        "detail": "in the body: a.b: is missing",
        "errors": [{"field": "a.b", "message": "is missing"}],
    }


def test_a_problem_is_told_even_if_it_quotes_what_is_no_text() -> None:
    response = Problem("bad-request", "If-Match is \udcff").response()
    assert isinstance(response.body, bytes)
    assert json.loads(response.body.decode())["detail"] == "If-Match is \udcff"


def test_a_list_of_errors_has_an_end() -> None:
    problem = invalid([FieldError(str(number), "is wrong") for number in range(1000)])
    assert len(problem.document()["errors"]) == MAX_ERRORS
    assert "and 997 more" in problem.detail


@pytest.mark.parametrize("kind", CATALOGUE)
def test_every_problem_has_a_status_and_those_that_pass_say_when_to_come_back(kind: str) -> None:
    response = Problem(kind, "so it is").response()
    assert 400 <= response.status < 600
    assert ("Retry-After" in response.headers) == (response.status == 503)
