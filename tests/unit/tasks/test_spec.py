"""What is read off a packed spec in short is what the whole of it says."""

import pytest

from tasks.spec import Spec, timing, unpack

SCHEDULES = [
    None,
    {"cron": "0 3 * * *", "timezone": "Europe/Paris"},
    {"cron": "@daily"},
    {"every_s": 300},
    {"at": "2026-12-01T00:00:00Z"},
    {"continuous": True},
]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_timing_is_the_specs(schedule: object) -> None:
    packed = Spec.model_validate(
        {"name": "t", "kind": "command", "schedule": schedule, "enabled": False, "retry": {"attempts": 7, "factor": 3}}
    ).pack()
    whole, short = unpack(packed), timing(packed)
    assert (short.schedule, short.retry, short.enabled) == (whole.schedule, whole.retry, whole.enabled)
    assert type(short.schedule) is type(whole.schedule)
    assert short.continuous == whole.continuous


def test_a_time_zone_that_is_not_known_here_is_taken_as_it_is() -> None:
    packed = Spec.model_validate({"name": "t", "kind": "command", "schedule": {"cron": "@daily"}}).pack()
    elsewhere = packed.replace(b"\xa3UTC", b"\xa3XYZ")
    assert timing(elsewhere).schedule == unpack(elsewhere).schedule
