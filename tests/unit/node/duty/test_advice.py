"""Warnings about definitions that no present member can run."""

import pytest
from immutables import Map

from node.duty.advice import passed_time, warnings
from node.state.value import Member
from tasks.definition.spec import Spec


def _member(name: str, kinds: tuple[str, ...] = ("copy",), **labels: str) -> Member:
    return Member(name, 0, name, 7000, 8100, labels=tuple(sorted(labels.items())), kinds=frozenset(kinds))


MEMBERS = (_member("node-1", disk="ssd"), _member("node-2", zone="b"), _member("node-3", (), zone="c"))


@pytest.mark.parametrize(
    ("group", "pin", "expected"),
    [
        ({}, None, []),
        ({"disk": "ssd"}, "node-3", []),
        (
            {"disk": "hdd"},
            None,
            ["group: no member has the label disk=hdd (members have disk=ssd); the task waits until"],
        ),
        ({"gpu": "yes"}, None, ["group: no member has the label gpu=yes; the task waits until"]),
        (
            {"disk": "ssd", "zone": "b"},
            None,
            ["group: no member has all of the labels disk=ssd, zone=b; the task waits"],
        ),
        ({"zone": "c"}, None, ["group: no member with zone=c (node-3) offers the kind copy; the task waits"]),
        (
            {},
            "node-9",
            ["pin: node-9 is not a member (members: node-1, node-2, node-3); the task runs elsewhere until"],
        ),
    ],
)
def test_a_warning_names_what_is_missing(group: dict[str, str], pin: str | None, expected: list[str]) -> None:
    found = warnings("copy", group, pin, MEMBERS)
    assert len(found) == len(expected)
    for sentence, start in zip(found, expected, strict=True):
        assert sentence.startswith(start)


def test_a_time_that_has_passed_is_told() -> None:
    now_us = 1_795_000_000_000_000  # in November 2026
    schedules = (
        {"at": "2020-01-01T00:00:00Z"},
        {"at": "2030-01-01T00:00:00Z"},
        {"every_s": 5},
        {"cron": "@daily"},
        None,
    )
    told = [passed_time(Map(), "a", Spec(name="a", kind="command", schedule=one).pack(), now_us) for one in schedules]  # type: ignore[arg-type]
    assert [len(one) for one in told] == [1, 0, 0, 0, 0]
    assert told[0][0].startswith("schedule: 2020-01-01T00:00:00Z has passed; the task does not run by itself: ")
