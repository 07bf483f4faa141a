"""Expressions in params: what they may be, and what they become."""

from datetime import UTC, datetime
from time import process_time
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.definition.spec import Cron, Every, Spec, read_spec
from tasks.definition.template import (
    OccurrenceTimes,
    TemplateFault,
    places_of_fields,
    sample_params,
    shown_params,
    substituted,
    template_of,
)
from tasks.definition.windows import window_start_us

BERLIN = "Europe/Berlin"


def us(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp()) * 1_000_000


def filled(text: str, at: str = "2026-03-30T01:00:00+00:00", zone: str = BERLIN, **fields: Any) -> Any:
    times = OccurrenceTimes(us(at), us("2026-03-29T01:00:00+00:00"), zone)
    return substituted({"a": text}, times, {"b.c": fields})["a"]


@pytest.mark.parametrize(
    ("text", "is_now"),
    [
        ("{{ nominal }}", "2026-03-30T03:00:00+02:00"),
        ("{{nominal in UTC}}", "2026-03-30T01:00:00Z"),
        ("{{ window_start | date }}/{{ window_end|date }}", "2026-03-29/2026-03-30"),
        ("{{ nominal | unix }}", "1774832400"),
        ("{{ nominal - 1d }}", "2026-03-29T03:00:00+02:00"),
        # The clocks changed on the 29th at 2:00: two days back is the same wall time, 48 hours back is not.
        ("{{ nominal - 2d }}", "2026-03-28T03:00:00+01:00"),
        ("{{ nominal - 48h }}", "2026-03-28T02:00:00+01:00"),
        ("{{ nominal - 1w + 90m - 30s }}", "2026-03-23T04:29:30+01:00"),
        ("{{ nominal | '%Y/%m/%d %H%M%S %j %G-W%V-%u %y %z %%' }}", "2026/03/30 030000 089 2026-W14-1 26 +0200 %"),
        ('a{{ nominal in Asia/Tokyo | "%H" }}b', "a10b"),
        ("{{ '{{.Names}}' }}", "{{.Names}}"),
        ("}} { no }", "}} { no }"),
        ("{{ after.b.c.rows }}", 7),
        ("{{ after.b.c.rows }} of {{ after.b.c.ok }}", "7 of true"),
        ("{{ after.b.c.list }}", [1, None]),
        ("{{ after.b.c.rows | text }}", "7"),
    ],
)
def test_an_expression_becomes(text: str, is_now: Any) -> None:
    assert filled(text, rows=7, ok=True, list=[1, None]) == is_now


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{{ now }}", "{{ now }} is not known here; allowed is nominal"),
        ("{{ nominal.year }}", "is not known here"),
        ("{{ nominal | upper }}", "is not known here"),
        ("{{ nominal - 1month }}", "is not known here"),
        ("{{ ''.__class__ }}", "is not known here"),
        ("{{ after.b }}", "is not known here"),
        ("{{ after.b.rows }}", "names b, and this task does not come `after` it"),
        ("{{ nominal", "has {{ without }}"),
        ("{{ a {{ nominal }}", "has {{ without }}"),
        ("{{ nominal | '%s' }}", "%s is not one of %Y"),
        ("{{ nominal | '%' }}", "% is not one of %Y"),
        ("{{ nominal in Mars/Olympus }}", "is not a time zone"),
    ],
)
def test_what_is_no_expression_is_told_with_its_place(text: str, why: str) -> None:
    with pytest.raises(ValidationError) as told:
        Spec(name="a", kind="k", template=True, schedule=Every(every_s=60), params={"x": {"y": ["", text]}})
    (one,) = told.value.errors()
    assert one["loc"] == ("params", "x", "y", 1)
    assert why in one["msg"]
    assert Spec(name="a", kind="k", params={"x": text}).params == {"x": text}, "without `template` it is text"


def test_secrets_cannot_depend_on_the_occurrence() -> None:
    reference: Any
    for reference in ({"secret": "{{ nominal | date }}"}, {"env": "A{{ nominal | '%d' }}"}):
        with pytest.raises(ValidationError, match="names a secret"):
            Spec(name="a", kind="k", template=True, params={"options": {"password": reference}})
    assert Spec(name="a", kind="k", template=True, params={"env": "{{ nominal }}", "argv": []})


@pytest.mark.parametrize("schedule", [None, {"at": "2026-11-21T03:00:00Z"}])
def test_only_repeated_times_make_windows(schedule: Any) -> None:
    given = {"name": "a", "kind": "k", "template": True, "schedule": schedule}
    with pytest.raises(ValidationError, match="needs a window"):
        Spec.model_validate({**given, "params": {"x": "{{ window_start }}"}})
    assert Spec.model_validate({**given, "params": {"x": "{{ nominal }}"}})
    if schedule is None:
        assert Spec.model_validate({**given, "params": {"x": "{{ window_start }}"}, "after": ["b"]})


def test_a_continuous_task_has_no_template_and_accepted_ones_are_not_checked_again() -> None:
    with pytest.raises(ValidationError, match="continuous"):
        Spec.model_validate({"name": "a", "kind": "k", "template": True, "schedule": {"continuous": True}})
    packed = Spec(name="a", kind="k", template=True, params={"x": "{{ nominal }}"}).pack()
    later = packed.replace(b"\xad{{ nominal }}", b"\xad{{ tomorrow}}")
    assert read_spec(later).template, "a later version may allow more"


def test_without_a_window_its_expressions_have_no_value() -> None:
    with pytest.raises(TemplateFault, match=r"^params.a\[0\]: {{ window_start \| date }} has no value"):
        substituted({"a": ["{{ window_start | date }}"]}, OccurrenceTimes(0), {})
    with pytest.raises(TemplateFault, match=r"^params.a: {{ after.b.n }} has no value: .*no field 'n'"):
        substituted({"a": "{{ after.b.n }}"}, OccurrenceTimes(0), {"b": {"m": 1}})
    with pytest.raises(TemplateFault, match="beyond the calendar"):
        substituted({"a": "{{ nominal - 999999d }}"}, OccurrenceTimes(0), {})
    assert shown_params({"a": "{{ after.b.n }} {{ nominal | unix }}"}, OccurrenceTimes(0)) == {"a": "{{ after.b.n }} 0"}


def test_two_samples_differ_in_each_part_of_a_date_and_of_a_time() -> None:
    form = "{{ nominal | '%Y %m %d %H %M %S %y %j %G %V %u' }}"
    for zone in ("UTC", BERLIN):
        for day in range(0, 1500, 7):
            at_us = us("2026-01-01T00:00:00+00:00") + day * 86_400_000_000 + day * 3_601_000_000
            samples = sample_params({"a": form}, OccurrenceTimes(at_us, None, zone))
            one, other = (sample["a"].split() for sample in samples)
            assert all(a != b for a, b in zip(one, other, strict=True)), (zone, day, one, other)


def test_what_is_needed_is_read_from_the_packed_spec() -> None:
    params = {"a": "{{ after.b.x }} {{ after.b.w }}", "c": ["{{ after.d.y }}", "{{ nominal }}"], "template": True}
    given = {"name": "a", "kind": "k", "params": params, "after": ["b", "d"]}
    needs = template_of(Spec.model_validate({**given, "template": True}).pack())
    assert needs is not None
    assert (needs.window, needs.fields) == ("", (("b", ("w", "x")), ("d", ("y",))))
    assert (needs.fields_of("b"), needs.fields_of("z")) == (("w", "x"), ())
    assert template_of(Spec.model_validate(given).pack()) is None, "the params have the word, too"
    assert places_of_fields(params) == [("c", 0)]
    assert places_of_fields({"x": "{{ after.b.x | text }}", "y": "", "z": "{{ after.b.x }} "}) == []


@pytest.mark.parametrize(
    ("at", "before"),
    [
        ("2026-03-29T03:00:00+02:00", "2026-03-28T02:30:00+01:00"),  # skipped: due at the first minute after
        ("2026-03-30T02:30:00+02:00", "2026-03-29T03:00:00+02:00"),
        ("2026-10-26T02:30:00+01:00", "2026-10-25T02:30:00+02:00"),  # twice: due the first time
    ],
)
def test_windows_follow_the_wall_clock_when_the_clocks_change(at: str, before: str) -> None:
    line = Cron(cron="30 2 * * *", timezone=BERLIN)
    assert window_start_us(line, None, us(at)) == us(before)


def test_windows_meet_and_lack_nothing() -> None:
    for schedule in (Cron(cron="0 */6 * * *", timezone=BERLIN), Every(every_s=0.1), Every(every_s=12_345.678)):
        at_us = us("2026-10-26T05:00:00+00:00")
        starts = [at_us]
        for _ in range(20):
            found = window_start_us(schedule, None, starts[-1])
            assert found is not None and found < starts[-1]
            starts.append(found)
    assert window_start_us(None, None, 7) is None
    assert datetime.fromtimestamp(at_us / 1e6, UTC).year == 2026


@pytest.mark.parametrize("piece", ["{{", '{{"', "{{'{{'", '{{"{{"', "{{ nominal", '{{ "{{" }} {{ " '])
def test_long_texts_of_no_expressions_are_read_in_one_go(piece: str) -> None:
    begun_s = process_time()
    given = {"name": "a", "kind": "k", "template": True, "params": {"x": piece * (500_000 // len(piece))}}
    with pytest.raises(ValidationError, match=r"has {{ without }}"):
        Spec.model_validate(given)
    assert process_time() - begun_s < 2, "a pattern that goes back and forth takes hours"


def test_a_definition_has_not_too_many_expressions() -> None:
    with pytest.raises(ValidationError, match="have 1001 expressions, and 1000 at most"):
        Spec(name="a", kind="k", template=True, params={"x": "{{ nominal }}" * 1001})
