"""Errors about wrong fields, in the user's terms."""

import pytest
from pydantic import ValidationError

from tasks.field_errors import field_errors
from tasks.spec import Spec


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
