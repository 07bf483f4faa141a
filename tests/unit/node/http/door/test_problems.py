"""Problem documents, and the errors of fields in them."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from node.http.door.problems import CATALOGUE, MAX_ERRORS, Problem, body_errors, invalid
from tasks.definition.field_errors import FieldError
from tasks.definition.spec import Spec


def _errors(given: Any, of: Any = Spec) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(of).validate_python(given)
    return {error.field: error.message for error in body_errors(caught.value, given)}


def _spec(**fields: Any) -> dict[str, Any]:
    return {"name": "a", "kind": "copy", **fields}


@pytest.mark.parametrize(
    ("schedule", "field", "word"),
    [
        ({"cron": "0 0 30 2 *"}, "schedule.cron", "never fires"),
        ({"cron": "nonsense"}, "schedule.cron", "five fields"),
        ({"cron": "0 3 * * *", "timezone": "Mars/Base"}, "schedule.timezone", "time zone"),
        ({"cron": "0 3 * * *", "every_s": 4}, "schedule.every_s", "cannot be combined with cron"),
        ({"every_s": 0}, "schedule.every_s", "greater than or equal to 0.1"),
        ({"every_s": "soon"}, "schedule.every_s", "number"),
        ({"at": "yesterday"}, "schedule.at", "must be a time"),
        ({"at": "2026-12-01T00:00:00"}, "schedule.at", "must end with Z or an offset"),
        ({"at": "9999-12-31T23:59:59-14:00"}, "schedule.at", "the year 9999"),
        ({"continuous": False}, "schedule.continuous", "True"),
        ({"often": True}, "schedule", "must be one of"),
        ({}, "schedule", "must be one of"),
        (7, "schedule", "must be one of"),
    ],
)
def test_errors_in_a_schedule_are_those_of_the_intended_form(schedule: Any, field: str, word: str) -> None:
    errors = _errors(_spec(schedule=schedule))
    assert list(errors) == [field]
    assert word in errors[field]


def test_fields_of_a_list_are_named_by_position() -> None:
    errors = _errors([_spec(), _spec(retry={"attempts": 0}), _spec(schedule={"cron": "x"}, weight=0)], list[Spec])
    assert set(errors) == {"[1].retry.attempts", "[2].schedule.cron", "[2].weight"}


def test_errors_explain_names_and_unknown_fields() -> None:
    errors = _errors({"name": "a/b", "kind": "copy", "retrys": 3})
    assert "no slash" in errors["name"]
    assert errors["retrys"] == "there is no such field"
    assert _errors({"name": "a"})["kind"] == "is missing"


def test_a_problem_document_has_the_members_of_rfc_9457() -> None:
    response = invalid([FieldError("a.b", "is missing")]).response()
    assert (response.status, response.content_type) == (422, "application/problem+json")
    assert isinstance(response.body, bytes)
    assert json.loads(response.body) == {
        "type": "urn:rota:problem:invalid",
        "title": "Some fields are invalid",
        "status": 422,
        "detail": "in the body: a.b: is missing",
        "errors": [{"field": "a.b", "message": "is missing"}],
    }


def test_a_problem_may_quote_undecodable_bytes() -> None:
    response = Problem("bad-request", "If-Match is \udcff").response()
    assert isinstance(response.body, bytes)
    assert json.loads(response.body.decode())["detail"] == "If-Match is \udcff"


def test_a_list_of_errors_is_bounded() -> None:
    problem = invalid([FieldError(str(number), "is wrong") for number in range(1000)])
    assert len(problem.document()["errors"]) == MAX_ERRORS
    assert "and 997 more" in problem.detail


@pytest.mark.parametrize("kind", CATALOGUE)
def test_every_problem_has_a_status_and_a_503_has_retry_after(kind: str) -> None:
    response = Problem(kind, "so it is").response()
    assert 400 <= response.status < 600
    assert ("Retry-After" in response.headers) == (response.status == 503)
