"""Errors about wrong fields, in the user's terms."""

from collections.abc import Iterator

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from tasks.definition.field_errors import FieldError, all_errors, field_errors, raise_all
from tasks.definition.spec import Spec


def test_the_error_for_a_non_text_yaml_value_asks_for_quotes() -> None:
    """`group: {gpu: yes}` in YAML is a boolean."""
    given = {"name": "train", "kind": "command", "group": {"gpu": True}}
    with pytest.raises(ValidationError) as raised:
        Spec.model_validate(given)
    [wrong] = field_errors(raised.value, given, within=())
    assert wrong.field.endswith("group.gpu")
    assert "put yes, no, on, off, numbers and dates in quotes" in wrong.message


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("schedule", {"at": "2026-12-01"}, "must end with Z or an offset, such as 2026-11-21T03:00:00Z"),
        ("params", "argv", "must be an object"),
        ("labels", ["bi"], "must be an object"),
    ],
)
def test_an_error_says_what_would_be_right(field: str, value: object, said: str) -> None:
    given = {"name": "train", "kind": "command", field: value}
    with pytest.raises(ValidationError) as raised:
        Spec.model_validate(given)
    assert said in [wrong.message for wrong in field_errors(raised.value, given, within=())]


class Half(BaseModel):
    model_config = ConfigDict(extra="forbid")
    low: int = 0
    high: int = 9
    step: int = 1
    name: str = "a"

    @model_validator(mode="after")
    def _together(self) -> "Half":
        raise_all("Half", self._wrong())
        return self

    def _wrong(self) -> Iterator[str]:
        if self.low > self.high:
            yield "`low` is above `high`"
        if self.step > self.high:
            yield "`step` is above `high`"


def test_all_that_is_wrong_is_found_at_once_however_it_is_found() -> None:
    assert all_errors(Half, {"low": 10, "step": 10}) == [
        FieldError("params", "`low` is above `high`"),
        FieldError("params", "`step` is above `high`"),
    ]
    assert all_errors(Half, {"low": 10, "name": 7, "more": 1}) == [
        FieldError("params.name", "must be text (in YAML, put yes, no, on, off, numbers and dates in quotes)"),
        FieldError("params.more", "there is no such field"),
        FieldError("params", "`low` is above `high`"),
    ]
    assert all_errors(Half, {"low": 10, "high": "x"}) == [
        FieldError("params.high", "Input should be a valid integer, unable to parse string as an integer")
    ], "what is said of a field that is left out is not known"
    assert all_errors(Half, {}) == []
