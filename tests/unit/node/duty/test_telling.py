"""Who sends which notices, and when."""

from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from immutables import Map

from node.duty.telling import LOOK_US, Send, TellingStep, due, quiet_until_us, sender, telling_step
from node.state.channel import Quiet, Severity
from node.state.members import Drain, MarkDown, StandAside, TakeLead
from node.state.outbox import NOTICES_MAX, ChannelRow, Notice
from node.state.telling import KEYS_MAX, PutChannel, Tell, Told
from node.state.value import RULES, State
from tests.unit.node.state.given import NOW_US, History, cluster, hook
from tests.unit.node.state.test_telling import run_once

S = 1_000_000


def notices(count: int, at_us: int = NOW_US, severity: Severity = "error") -> tuple[Notice, ...]:
    return tuple(Notice(f"{number}.0", "run_failed", severity, at_us + number, "it failed") for number in range(count))


def row(count: int = 1, at_us: int = NOW_US, severity: Severity = "error", **fields: Any) -> ChannelRow:
    return ChannelRow("ops", hook(**fields).pack(), notices=notices(count, at_us, severity))


def test_what_comes_within_the_time_goes_in_one_message() -> None:
    storm = row(30, group_s=5)
    assert due(storm, NOW_US + S) == ((), NOW_US + 5 * S)
    keys, _ = due(storm, NOW_US + 5 * S)
    assert len(keys) == 30


def test_a_full_message_does_not_wait() -> None:
    keys, _ = due(row(KEYS_MAX + 5, group_s=60), NOW_US + S)
    assert keys == tuple(f"{number}.0" for number in range(KEYS_MAX))


def test_a_clock_that_was_wrong_holds_nothing_up() -> None:
    assert due(row(at_us=NOW_US + 3600 * S), NOW_US)[0], "stamped an hour ahead"
    assert due(replace(row(), again_us=NOW_US + 3600 * S), NOW_US + 5 * S)[0]


def test_after_a_failure_it_waits() -> None:
    assert due(replace(row(), again_us=NOW_US + 60 * S), NOW_US + 30 * S) == ((), NOW_US + 60 * S)


def test_quiet_hours_hold_back_what_is_not_critical() -> None:
    quiet = {"from": "00:00", "to": "06:00"}  # NOW_US is at midnight
    held = row(3, quiet=quiet)
    assert due(held, NOW_US + 3600 * S) == ((), NOW_US + 6 * 3600 * S)
    critical = replace(notices(1, severity="critical")[0], key="9.0")
    assert due(replace(held, notices=(*held.notices, critical)), NOW_US + 3600 * S)[0] == ("9.0",)
    assert len(due(held, NOW_US + 6 * 3600 * S)[0]) == 3


@pytest.mark.parametrize(
    ("at", "until"),
    [
        ("2026-11-23 21:59", None),
        ("2026-11-23 22:00", "2026-11-24 07:00"),
        ("2026-11-24 06:59", "2026-11-24 07:00"),
        ("2026-11-24 07:00", None),
        ("2026-03-28 23:00", "2026-03-29 07:00"),  # an hour is skipped in between
        ("2026-10-24 23:00", "2026-10-25 07:00"),  # an hour comes twice
    ],
)
def test_quiet_hours_are_those_of_the_wall_clock(at: str, until: str | None) -> None:
    def paris_us(text: str) -> int:
        return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Paris")).timestamp()) * S

    quiet = Quiet.model_validate({"from": "22:00", "to": "07:00", "timezone": "Europe/Paris"})
    assert quiet_until_us(quiet, paris_us(at)) == (None if until is None else paris_us(until))


@pytest.mark.parametrize("second_pass", [False, True])
def test_quiet_hours_that_end_in_an_hour_that_comes_twice_end_later_than_now(second_pass: bool) -> None:
    quiet = Quiet.model_validate({"from": "22:00", "to": "02:30", "timezone": "Europe/Paris"})
    two = datetime(2026, 10, 25, 2, tzinfo=ZoneInfo("Europe/Paris"), fold=int(second_pass))
    now_us = round(two.timestamp()) * S
    assert quiet_until_us(quiet, now_us) == now_us + 30 * 60 * S


def test_hours_of_an_unknown_time_zone_hold_nothing_back() -> None:
    quiet = Quiet.model_construct(from_="00:00", to="23:00", timezone="Mars/Olympus")
    assert quiet_until_us(quiet, NOW_US) is None


# -- who


def telling() -> History:
    history = cluster("a", "b", "c")
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    history.must(PutChannel(NOW_US, "ops", hook(group_s=0).pack()))
    return history


def other(state: State, *names: str) -> str:
    return next(name for name in sorted(state.members) if name not in names)


def down(history: History, member: str) -> None:
    history.must(MarkDown(NOW_US, member, 1, "silent", 1))


def test_one_member_sends_and_the_next_one_after_a_failure() -> None:
    state = telling().state
    order = [sender(state, "ops", tries) for tries in range(4)]
    assert sorted(filter(None, order[:3])) == ["a", "b", "c"]
    assert order[3] == order[0]
    assert {sender(state, f"ops-{number}", 0) for number in range(20)} == {"a", "b", "c"}


def test_draining_members_send_only_where_none_is_up() -> None:
    history = telling()
    first = sender(history.state, "ops", 0)
    assert first is not None
    history.must(Drain(NOW_US, first, on=True))
    assert sender(history.state, "ops", 0) != first
    for member in "abc":
        history.must(StandAside(NOW_US, member, 1, "no room"))
    assert sender(history.state, "ops", 0) == first
    for member in "abc":
        down(history, member)
    assert sender(history.state, "ops", 0) is None


def test_the_sender_asks_for_permission_and_sends_when_it_has_it() -> None:
    history = telling()
    lost = other(history.state, me := sender(history.state, "ops", 0) or "")
    down(history, lost)
    rest = other(history.state, me, lost)
    keys = tuple(one.key for one in history.state.channels["ops"].notices)
    step = telling_step(history.state, me, 1, NOW_US, set())
    assert step.proposals == (Tell(NOW_US, "ops", keys, me, 1),)
    assert telling_step(history.state, me, 1, NOW_US, {"ops"}).proposals == ()
    assert telling_step(history.state, rest, 1, NOW_US, set()).proposals == ()

    history.must(step.proposals[0])
    [send] = telling_step(history.state, me, 1, NOW_US, set()).sends
    assert [one.key for one in send.notices] == list(keys)
    assert telling_step(history.state, me, 2, NOW_US, set()).sends == (), "it was another process's"
    assert telling_step(history.state, rest, 1, NOW_US, set()).sends == ()
    history.must(Told(NOW_US, "ops", send.permission.token, "failed", "no answer"))
    [again] = telling_step(history.state, rest, 1, NOW_US + 2 * S, set()).proposals
    assert again.keys == keys, "after a failure the next member sends"


def test_a_channel_that_is_switched_off_sends_nothing_of_what_waits() -> None:
    history = telling()
    down(history, other(history.state, me := sender(history.state, "ops", 0) or ""))
    assert telling_step(history.state, me, 1, NOW_US, set()).proposals
    history.must(PutChannel(NOW_US, "ops", hook(group_s=0, enabled=False).pack()))
    assert telling_step(history.state, me, 1, NOW_US, set()) == TellingStep()
    history.must(PutChannel(NOW_US, "ops", hook(group_s=0).pack()))
    assert telling_step(history.state, me, 1, NOW_US, set()).proposals


def test_the_permission_of_a_member_that_is_down_is_nobodys() -> None:
    history = telling()
    me = sender(history.state, "ops", 0) or ""
    lost = other(history.state, me)
    down(history, lost)
    history.must(telling_step(history.state, me, 1, NOW_US, set()).proposals[0])
    down(history, me)
    rest = other(history.state, me, lost)
    [tell] = telling_step(history.state, rest, 1, NOW_US, set()).proposals
    assert tell.member == rest


def test_it_looks_again_when_something_may_be_due() -> None:
    state = telling().state
    me = sender(state, "ops", 0) or ""
    assert telling_step(state, me, 1, NOW_US, set()).look_us is None
    held = row(1, quiet={"from": "00:00", "to": "06:00"})
    state = replace(state, channels=Map({"ops": held}))
    assert telling_step(state, me, 1, NOW_US, set()).look_us == NOW_US + LOOK_US


# -- successes


@pytest.mark.more
def test_a_flood_of_successes_delays_a_failure_by_one_message_at_most() -> None:
    """Two thousand a minute, which the receiver is too slow for: a message takes it eight seconds."""
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    history.must(PutChannel(NOW_US, "ops", hook(group_s=1, events=["run_failed", "run_succeeded"]).pack()))
    history.put("good")
    history.put("bad", retry={"attempts": 1})
    came_us: dict[str, int] = {}
    late_us: list[int] = []
    under_way: tuple[int, Send] | None = None
    for tick in range(2200):
        now_us = NOW_US + tick * 30_000
        fails = tick >= 1000 and tick % 500 == 100
        run_id = run_once(history, "failed" if fails else "succeeded", now_us, "bad" if fails else "good")
        if fails:
            came_us[run_id] = now_us
        if under_way is not None and now_us >= under_way[0]:
            sent = under_way[1]
            late_us += [now_us - came_us[one.run_id] for one in sent.notices if one.run_id in came_us]
            history.must(Told(now_us, "ops", sent.permission.token, "accepted"))
            under_way = None
        step = telling_step(history.state, "a", 1, now_us, set() if under_way is None else {"ops"})
        if step.proposals:
            history.must(step.proposals[0])
            [send] = telling_step(history.state, "a", 1, now_us, set()).sends
            under_way = now_us + 8 * S, send
    row = history.state.channels["ops"]
    assert len(late_us) == 2
    assert max(late_us) <= 17 * S, "the time for its group, a message that was under way, and its own"
    assert (len(row.notices), row.lost) == (NOTICES_MAX, 0)
    assert row.lost_successes > 300


def mixed(**fields: Any) -> ChannelRow:
    """Three successes, and a failure that came a second after them."""
    successes = tuple(
        Notice(f"{number}.0", "run_succeeded", "info", NOW_US + number, "t succeeded") for number in range(3)
    )
    failure = Notice("9.0", "run_failed", "error", NOW_US + S, "t failed")
    return ChannelRow("ops", hook(group_s=5, **fields).pack(), notices=(*successes, failure))


def test_successes_wait_for_failures_and_go_apart_from_them() -> None:
    both = mixed()
    assert due(both, NOW_US + 5 * S) == ((), NOW_US + 6 * S), "the failure waits for others, and so do successes"
    assert due(both, NOW_US + 6 * S)[0] == ("9.0",)
    assert due(both.without(both.of({"9.0"})), NOW_US + 6 * S)[0] == ("0.0", "1.0", "2.0")


def test_a_pause_after_successes_holds_up_no_failure() -> None:
    both = replace(mixed(), tries=5, again_us=NOW_US + 60 * S, failed_urgency=2)
    assert due(both, NOW_US + 6 * S)[0] == ("9.0",)
    assert due(both.without(both.of({"9.0"})), NOW_US + 6 * S) == ((), NOW_US + 60 * S)
    assert due(replace(both, failed_urgency=0), NOW_US + 6 * S) == ((), NOW_US + 60 * S)
