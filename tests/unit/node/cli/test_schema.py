"""The JSON Schema of files of tasks."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from node.cli.schema import file_schema
from tasks.command.kind import CommandParams
from tasks.definition.spec import EXAMPLE, Spec

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
        {"name": "a", "kind": "command", "params": {"argv": "{{ after.b.argv }}"}, "template": True, "after": ["b"]},
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


WHOLE: dict[str, Any] = {
    "name": "a",
    "kind": "command",
    "params": {"argv": ["x"]},
    "schedule": {"cron": "0 3 * * *", "timezone": "UTC"},
    "key": "k",
    "group": {"zone": "a"},
    "labels": {"team": "bi"},
    "pin": "node-1",
    "sticky": True,
    "weight": 2,
    "standbys": 1,
    "overlap": "queue",
    "catch_up": "all",
    "timeout_s": 5.0,
    "retry": {"attempts": 1, "backoff_s": 1.0, "factor": 1.0, "max_s": 1.0, "away_s": 1.0},
    "failover": {"grace_s": 1.0, "resume": "restart", "max": 1},
    "enabled": False,
    "set": "site",
    "run_as": "deploy",
    "deadlines": {"start_within_s": 10.0, "finish_within_s": 20.0, "success_every_s": 1000.0},
    "limits": {
        "memory": 2**30,
        "cpu": 1.5,
        "processes": 64,
        "files": 256,
        "scratch": 2**30,
        "log": 2**20,
    },
}
SCHEDULES: tuple[Any, ...] = (None, {"every_s": 5.0}, {"at": "2026-12-01T00:00:00Z"}, {"continuous": True})
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    1e9,
    "",
    "a",
    "a b",
    "x" * 600,
    [],
    ["a"],
    [1],
    {},
    {"a": "b"},
    {"a": 1},
)
MANY = {str(number): "x" for number in range(101)}
SAID_BY_THE_SERVER_ONLY = re.compile(
    r"cron line|time zone|may not be less than|must be more than|must be at least 32 MiB|decimal places|"
    r"'schedule', 'function-after"
)
"""What a schema cannot say: cron lines, time zones and times, and which fields may not stand beside which."""


def _places(value: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name in value if isinstance(value, dict) else ():
        yield (*at, name)
        yield from _places(value[name], (*at, name))


def _with(value: Mapping[str, Any], at: tuple[str, ...], new: Any) -> dict[str, Any]:
    name, *rest = at
    return {**value, name: _with(value[name], tuple(rest), new) if rest else new}


def _variants() -> Iterator[dict[str, Any]]:
    for schedule in SCHEDULES:
        yield WHOLE | {"schedule": schedule}
    for at in _places(WHOLE):
        yield from (_with(WHOLE, at, value) for value in VALUES)
    for name in WHOLE:
        yield {key: value for key, value in WHOLE.items() if key != name}
    for name in ("group", "labels", "retry", "failover", "deadlines", "limits", "schedule"):
        yield _with(WHOLE, (name, "extra"), 1)
    yield WHOLE | {"labels": MANY}


def test_the_schema_and_the_server_agree() -> None:
    """But for what the server converts: it takes `true` for 1, and an editor shows that this is odd."""
    disagreed = []
    for given in _variants():
        try:
            spec = Spec.model_validate(given)
            CommandParams.model_validate(spec.params)
        except ValidationError as error:
            refused = str(error.errors())
            if CHECK.is_valid(given) and not SAID_BY_THE_SERVER_ONLY.search(refused):
                disagreed.append(f"the server alone refuses {given}: {refused}")
        else:
            none_as_empty = {**given} | {name: given.get(name) or {} for name in ("group", "labels")}
            dumped = spec.model_dump(mode="json")
            as_given = all(repr(dumped[name]) == repr(value) for name, value in none_as_empty.items())
            if as_given and not CHECK.is_valid(given):
                disagreed.append(f"the schema alone refuses {given}")
    assert disagreed == []
