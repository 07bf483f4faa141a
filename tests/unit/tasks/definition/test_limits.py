"""What a task's limits may be, and how they are stored."""

from typing import Any

import msgpack
import pytest
from pydantic import ValidationError

from tasks.definition.limits import Limits
from tasks.definition.spec import Spec, read_spec


def made(**limits: Any) -> Limits:
    return Spec.model_validate({"name": "t", "kind": "command", "limits": limits}).limits


@pytest.mark.parametrize(
    ("given", "stored"),
    [(2**30, 2**30), ("512MiB", 2**29), ("40MB", 40_000_000), ("1TiB", 2**40), ("65536KiB", 2**26), ("9GB", 9 * 10**9)],
)
def test_sizes_are_bytes_or_text_that_is_exact(given: Any, stored: int) -> None:
    limits = made(memory=given, scratch=given, log=given)
    assert (limits.memory, limits.scratch, limits.log) == (stored, stored, stored)


@pytest.mark.parametrize(
    "given",
    ["512M", "2G", "1.5GiB", "512 MiB", "512mib", "-1MiB", "0MiB", "1e9", "", "١MiB", "1000000000000KiB", "MiB", "512"],
)
def test_text_that_could_mean_something_else_is_refused(given: str) -> None:
    with pytest.raises(ValidationError, match="is not a size: give bytes as a whole number"):
        made(memory=given)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"memory": 31 * 2**20}, "must be at least 32 MiB"),
        ({"memory": 2**50 + 1}, "less than or equal to"),
        ({"memory": "999999999999TiB"}, "less than or equal to"),
        ({"memory": 1.5e9 + 0.5}, "fractional part"),
        ({"memory": True}, "not true or false"),
        ({"scratch": 0}, "greater than or equal to 1048576"),
        ({"log": -1}, "greater than or equal to 1048576"),
        ({"processes": 7}, "greater than or equal to 8"),
        ({"processes": 2**23}, "less than or equal to"),
        ({"files": 3}, "greater than or equal to 32"),
        ({"cpu": 0}, "greater than or equal to 0.01"),
        ({"cpu": 0.0105}, "at most three decimal places"),
        ({"cpu": float("nan")}, "less than or equal to 4096"),
        ({"cpu": float("inf")}, "less than or equal to 4096"),
        ({"cpu": 1e300}, "less than or equal to 4096"),
        ({"disk": 1}, "Extra inputs are not permitted"),
    ],
)
def test_what_cannot_be_is_refused(limits: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        made(**limits)


@pytest.mark.parametrize("milli", [10, 11, 29, 57, 101, 1001, 1150, 4_095_999])
def test_cores_are_exact_in_thousandths(milli: int) -> None:
    assert made(cpu=milli / 1000).cpu_milli == milli


def test_a_definition_without_limits_is_packed_as_before_there_were_any() -> None:
    spec = Spec(name="t", kind="command")
    assert b"limits" not in spec.pack()
    assert read_spec(spec.pack()).limits == Limits()


def test_limits_are_stored_as_numbers_and_read_again() -> None:
    spec = Spec.model_validate({"name": "t", "kind": "command", "limits": {"memory": "1GiB", "cpu": 0.25}})
    assert msgpack.unpackb(spec.pack())["limits"]["memory"] == 2**30
    assert read_spec(spec.pack()) == spec
    given_again = Spec.model_validate(spec.model_dump(mode="json"))
    assert given_again.pack() == spec.pack(), "the same definition keeps its version"
