"""Which backups stay."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.backup.keep import KeepRules, why_kept
from tasks.backup.manifest import Manifest
from tasks.backup.params import BackupParams, backup_location, keep_of

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)


def backup(created: datetime, token: int = 1) -> Manifest:
    return Manifest(
        task="t",
        run_id="t~1",
        attempt=1,
        token=token,
        created=created,
        finished=created,
        source_type="folder",
        source={},
        tools={},
        files=(),
        url=f"{created.isoformat()}-{token}",
    )


def ages(rules: dict[str, Any], *hours_ago: float) -> list[float]:
    """Which of the backups of that age stay."""
    backups = {backup(NOON - timedelta(hours=hours)).url: hours for hours in hours_ago}
    found = why_kept([backup(NOON - timedelta(hours=hours)) for hours in hours_ago], KeepRules.model_validate(rules))
    return sorted(backups[url] for url in found)


DAYS = [24.0 * day for day in range(60)]


@pytest.mark.parametrize(
    ("rules", "stay"),
    [
        ({"last": 3}, DAYS[:3]),
        ({"daily": 3}, DAYS[:3]),
        ({"within": "2d"}, DAYS[:3]),
        ({"weekly": 2}, [DAYS[0], DAYS[4]]),  # a Thursday, and the Sunday before
        ({"monthly": 3}, [DAYS[0], DAYS[26], DAYS[57]]),
        ({"yearly": 5}, [DAYS[0]]),
        ({"last": 1, "weekly": 2, "monthly": 2}, [DAYS[0], DAYS[4], DAYS[26]]),
    ],
)
def test_the_newest_of_each_period_stays(rules: dict[str, Any], stay: list[float]) -> None:
    assert ages(rules, *DAYS) == stay


def test_a_task_that_made_no_backup_for_a_year_loses_none() -> None:
    assert ages({"daily": 3, "within": "1w"}, 9000, 9024, 9048, 9072) == [9000, 9024, 9048, 9072]
    assert ages({"daily": 3}, 9000, 9024, 9048, 9072) == [9000, 9024, 9048]


def test_a_day_begins_by_the_clocks_of_the_zone() -> None:
    late, early = datetime(2026, 11, 25, 23, 30, tzinfo=UTC), datetime(2026, 11, 26, 0, 30, tzinfo=UTC)
    assert len(why_kept([backup(late), backup(early)], KeepRules(daily=2))) == 2
    assert len(why_kept([backup(late), backup(early)], KeepRules(daily=2, timezone="Europe/Paris"))) == 1
    # Clocks are set back at 03:00: the hour from 02:00 on comes twice.
    twice = [backup(datetime(2026, 10, 25, hour, 30, tzinfo=UTC)) for hour in (0, 1)]
    assert len(why_kept(twice, KeepRules(hourly=2, timezone="Europe/Paris"))) == 2


def test_each_rule_that_keeps_a_backup_says_so() -> None:
    made = backup(NOON)
    assert why_kept([made], KeepRules(last=2, monthly=1, within="36h"))[made.url] == [
        "last: 1 of 2",
        "monthly: 2026-11, 1 of 1",
        "within: 36h before the newest",
    ]


@pytest.mark.parametrize("seed", range(50))
def test_more_rules_never_keep_less_and_applying_them_again_removes_nothing(seed: int) -> None:
    draw = random.Random(seed)
    made = [backup(NOON - timedelta(minutes=draw.randrange(500_000)), token) for token in range(draw.randrange(1, 60))]
    names = draw.sample(["last", "hourly", "daily", "weekly", "monthly", "yearly"], draw.randrange(1, 6))
    rules = {name: draw.randrange(1, 9) for name in names}
    stay = why_kept(made, KeepRules.model_validate(rules))
    for name, count in rules.items():
        assert why_kept(made, KeepRules.model_validate({name: count})).keys() <= stay.keys()
    assert why_kept([one for one in made if one.url in stay], KeepRules.model_validate(rules)) == stay
    assert max(made, key=lambda one: (one.created, one.token)).url in stay


@pytest.mark.parametrize(
    ("keep", "says"),
    [
        ({}, "no rule is given"),
        ({"daily": 0}, "greater than or equal to 1"),
        ({"within": "0d"}, "should match pattern"),
        ({"within": "1 month"}, "should match pattern"),
        ({"daily": 1, "timezone": "Mars/North"}, "is not a time zone"),
        ({"fortnightly": 2}, "Extra inputs are not permitted"),
        (0, "greater than or equal to 1"),
    ],
)
def test_rules_that_keep_nothing_or_are_unknown_are_refused(keep: Any, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        BackupParams.model_validate({"source": {"type": "folder", "path": "/a"}, "destination": "/b", "keep": keep})


def test_backups_are_found_whatever_the_definition_says_of_keeping_them() -> None:
    params = {"destination": "/b", "keep": {"a rule of": "another version"}}
    assert backup_location(params, "orders") == ("/b/orders", {})
    with pytest.raises(ValidationError):
        keep_of(params)
    assert keep_of({"keep": 3}) == KeepRules(last=3)
    assert keep_of({}) is None


def test_a_minimum_stays_whatever_the_other_rules_say() -> None:
    rules = KeepRules(within="1d", minimum=3)
    found = [backup(datetime(2026, 11, day, tzinfo=UTC)) for day in (1, 2, 10, 20)]
    assert [why_kept(found, rules).get(one.url) for one in found] == [
        None,
        ["minimum: 3 of 3"],
        ["minimum: 2 of 3"],
        ["within: 1d before the newest"],
    ]
