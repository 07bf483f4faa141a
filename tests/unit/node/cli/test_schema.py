"""The JSON Schema of files of tasks."""

from typing import Any

import jsonschema
import pytest

from node.cli.schema import file_schema
from tasks.command import CommandParams
from tasks.spec import EXAMPLE

SCHEMA = file_schema({"command": CommandParams.model_json_schema()})
CHECK = jsonschema.Draft202012Validator(SCHEMA)


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "given",
    [
        EXAMPLE,
        [EXAMPLE, {"name": "b", "kind": "command", "params": {"argv": ["x"], "env": {"KEY": {"secret": "key"}}}}],
        {"name": "a", "kind": "a-kind-of-another-node", "params": {"anything": 1}},
    ],
)
def test_valid_files_are_valid(given: Any) -> None:
    assert [error.message for error in CHECK.iter_errors(given)] == []


@pytest.mark.parametrize(
    "given",
    [
        {"name": "a"},
        {"name": "a", "kind": "command", "params": {"argv": []}},
        {"name": "a", "kind": "command", "params": {"argv": ["x"], "shell": True}},
        {"name": "a", "kind": "command", "params": {"argv": ["x"]}, "schedul": {"every_s": 5}},
        {"name": "a b", "kind": "command", "params": {"argv": ["x"]}},
    ],
)
def test_a_mistake_is_found(given: Any) -> None:
    assert not CHECK.is_valid(given)
