"""What is said of a field that is wrong, in the user's terms."""

import pytest
from pydantic import ValidationError

from tasks.field_errors import field_errors
from tasks.spec import Spec


def test_a_yaml_value_that_is_not_text_is_told_to_be_quoted() -> None:
    """`group: {gpu: yes}` in YAML is a boolean."""
    given = {"name": "train", "kind": "command", "group": {"gpu": True}}
    with pytest.raises(ValidationError) as raised:
        Spec.model_validate(given)
    [wrong] = field_errors(raised.value, given, within=())
    assert wrong.field.endswith("group.gpu")
    assert "put yes, no, on, off, numbers and dates in quotes" in wrong.message
