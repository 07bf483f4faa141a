"""Placement is a contract: what is pinned in tests/golden/placement.json stays so (docs/explanation/placement.md).

The file is written by the naive implementation: `python -m tests.golden.write_placement`. Add cases there; where a
line that stands would change, owners change under clusters that are running.
"""

import json
from typing import Any

import pytest

from hashing.key import key64, mix
from hashing.placement import place, standbys
from hashing.preference import because, preference
from hashing.succession import succession
from hashing.view import Slot, Task
from tests.golden.write_placement import FILE, text

GOLDEN: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


def _pairs(labels: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in labels)


def _slot(row: dict[str, Any]) -> Slot:
    return Slot(**{**row, "labels": _pairs(row["labels"]), "kinds": frozenset(row["kinds"])})


def _task(row: dict[str, Any]) -> Task:
    return Task(**{**row, "group": _pairs(row["group"])})


def test_keys() -> None:
    assert {key: key64(key) for key in GOLDEN["key64"]} == GOLDEN["key64"]


def test_mixes() -> None:
    assert {number: mix(int(number)) for number in GOLDEN["mix"]} == GOLDEN["mix"]


def test_successions() -> None:
    for pair, order in GOLDEN["succession"].items():
        key, n = pair.split("/")
        assert list(succession(int(key), int(n))) == order, pair


@pytest.mark.parametrize("case", GOLDEN["placement"], ids=lambda case: case["case"])
def test_placements(case: dict[str, Any]) -> None:
    slots = [_slot(row) for row in case["slots"]]
    tasks = [_task(row["task"]) for row in case["tasks"]]
    owners = place(slots, tasks, case["balance_slack_milli"]).owners
    for task, owner, row in zip(tasks, owners, case["tasks"], strict=True):
        assert owner == row["owner"], task.name
        assert preference(slots, task) == row["preference"], task.name
        assert standbys(slots, task, owner) == row["standbys"], task.name
        assert [list(reason) for reason in because(slots, task, owner)] == row["because"], task.name


def test_the_cases_show_every_verdict() -> None:
    seen = {verdict for case in GOLDEN["placement"] for row in case["tasks"] for _, verdict in row["because"]}
    assert seen == {"down", "draining", "vacant", "group", "kind", "full", "chosen"}


def test_the_file_is_what_the_naive_implementation_writes() -> None:
    assert FILE.read_text(encoding="utf-8") == text()
