"""The timing that is read from a packed spec is that of the whole spec."""

import msgpack
import pytest
from pydantic import ValidationError

from tasks.definition.spec import Spec, cached_spec, labels_of, set_of, timing

SCHEDULES = [
    None,
    {"cron": "0 3 * * *", "timezone": "Europe/Paris"},
    {"cron": "@daily"},
    {"every_s": 300},
    {"at": "2026-12-01T00:00:00Z"},
    {"continuous": True},
]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_timing_read_from_a_packed_spec_equals_the_specs(schedule: object) -> None:
    packed = Spec.model_validate(
        {"name": "t", "kind": "command", "schedule": schedule, "enabled": False, "retry": {"attempts": 7, "factor": 3}}
    ).pack()
    whole, short = cached_spec(packed), timing(packed)
    assert (short.schedule, short.retry, short.enabled) == (whole.schedule, whole.retry, whole.enabled)
    assert type(short.schedule) is type(whole.schedule)
    assert short.continuous == whole.continuous


def test_a_packed_time_zone_unknown_here_is_kept() -> None:
    packed = Spec.model_validate({"name": "t", "kind": "command", "schedule": {"cron": "@daily"}}).pack()
    elsewhere = packed.replace(b"\xa3UTC", b"\xa3XYZ")
    assert timing(elsewhere).schedule == cached_spec(elsewhere).schedule


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59-14:00", "9999-01-01T00:00:00.000001Z"])
def test_a_time_after_year_9999_is_refused_in_new_specs_and_read_in_stored_ones(at: str) -> None:
    with pytest.raises(ValidationError, match="the year 9999"):
        Spec.model_validate({"name": "t", "kind": "command", "schedule": {"at": at}})
    last = "9999-01-01T00:00:00Z"
    packed = Spec.model_validate({"name": "t", "kind": "command", "schedule": {"at": last}}).pack()
    earlier = packed.replace(b"\xb4" + last.encode(), bytes([0xA0 + len(at)]) + at.encode())
    assert timing(earlier).schedule == cached_spec(earlier).schedule


def test_a_definition_is_packed_as_it_was_before_there_were_its_later_fields() -> None:
    """Or it would get another version wherever it is registered again."""
    at_first = "catch_up enabled failover group key kind name overlap params pin retry schedule set standbys sticky"
    assert list(msgpack.unpackb(Spec(name="t", kind="command").pack())) == [*at_first.split(), "timeout_s", "weight"]


@pytest.mark.parametrize(
    "params", [{}, {"set": None}, {"set": "x", "labels": 1}, {"a": ["\xa3set", b"\xa3set\xc0".hex()]}]
)
@pytest.mark.parametrize("name", [None, "site", "s" * 128])
def test_the_set_and_the_labels_of_a_packed_spec_are_the_specs(name: str | None, params: dict[str, object]) -> None:
    for labels in ({}, {"set": "x", "labels": "y"}):
        spec = Spec.model_validate({"name": "t", "kind": "command", "set": name, "params": params, "labels": labels})
        assert (set_of(spec.pack()), labels_of(spec.pack())) == (name, labels)
