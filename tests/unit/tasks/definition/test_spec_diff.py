"""The differences between two definitions, field by field."""

from typing import Any

import pytest

from tasks.definition.spec import Spec
from tasks.definition.spec_diff import FieldChange, changes


def _dumped(**fields: Any) -> dict[str, Any]:
    return Spec.model_validate({"name": "a", "kind": "copy", **fields}).model_dump(mode="json")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {}, []),
        ({}, {"retry": {"attempts": 5}}, [FieldChange("retry.attempts", 3, 5)]),
        ({"schedule": {"every_s": 5}}, {}, [FieldChange("schedule", {"every_s": 5.0}, None)]),
        ({"params": {"a": {"b": [1]}}}, {"params": {"a": {"b": [1, 2]}}}, [FieldChange("params.a.b", [1], [1, 2])]),
        ({"params": {"a": 1}}, {"params": {"b": None}}, [FieldChange("params.a", 1, None)]),
        ({"params": {"on": True}}, {"params": {"on": 1}}, [FieldChange("params.on", True, 1)]),
    ],
)
def test_each_field_that_differs_is_named(
    before: dict[str, Any], after: dict[str, Any], expected: list[FieldChange]
) -> None:
    assert changes(_dumped(**before), _dumped(**after)) == expected
