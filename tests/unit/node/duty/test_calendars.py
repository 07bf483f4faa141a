"""By calendars: what an owner decides on, what it says, and when the leader extends public holidays."""

from datetime import date

from node.duty.calendars import AGAIN_US, EXTENDED_AT_DAYS, LOOK_US, CalendarKeeper, wanted_days
from node.duty.decide import needs
from node.duty.duty import Duty
from node.duty.ownership import Ownership
from node.duty.standing import standing
from node.duty.timetable import TimeSpan, timetable
from node.state.blackouts import EndBlackout, SetBlackout
from node.state.calendar import AHEAD_DAYS
from node.state.calendars import SetCalendar
from node.state.claims import Claim
from tests.unit.node.duty.given import LEASE
from tests.unit.node.state.given import DAY_US, NOW_US, History
from tests.unit.node.state.test_calendars import NIGHTLY, leading, put

TODAY = date(1970, 1, 1).toordinal() + NOW_US // DAY_US
HOUR_US = 3_600_000_000


def closed(*days: int, until: int = 0) -> History:
    history = leading()
    history.must(SetCalendar(NOW_US, "closing", days, until))
    put(history, "t", "closing")
    return history


def test_a_day_that_is_left_out_has_no_occurrence_and_is_told() -> None:
    history = closed(TODAY, TODAY + 1)
    due_us = NOW_US + 2 * DAY_US + 3 * HOUR_US
    found = needs(history.state, "t", history.state.members["a"], NOW_US + DAY_US + 4 * HOUR_US)
    assert (found.entries, found.wishes, found.look_us) == ((), (), due_us)
    [told] = standing(history.state, "t", "a", (), NOW_US)
    assert told.code == "not_due"
    assert "(Fri 4 Oct 2024 falls out (closing); Sat 5 Oct 2024 falls out (closing))" in told.detail
    found = needs(history.state, "t", history.state.members["a"], due_us)
    assert [wish.claim for wish in found.wishes] == [Claim(due_us, "t", due_us, "a", 1)]
    assert found.entries == (), "days that are left out are not missed"


def test_nothing_is_due_after_the_last_day_that_is_known() -> None:
    history = closed(until=TODAY)
    span = TimeSpan(NOW_US, NOW_US + 5 * DAY_US)
    [upcoming] = timetable(history.state, span)
    assert list(upcoming.times) == [NOW_US + 3 * HOUR_US]
    found = needs(history.state, "t", history.state.members["a"], NOW_US + 4 * DAY_US)
    assert [wish.claim.fire_at_us for wish in found.wishes] == [NOW_US + 3 * HOUR_US]
    history.must(Claim(NOW_US + 4 * HOUR_US, "t", NOW_US + 3 * HOUR_US, "a", 1))
    history.put("u", schedule=NIGHTLY, calendar={"skip": "closing"})
    [told] = standing(history.state, "u", "a", (), NOW_US + DAY_US)
    history.must(SetCalendar(NOW_US, "closing", (), TODAY - 1))
    [told] = standing(history.state, "u", "a", (), NOW_US)
    assert told.code == "calendar"
    assert told.detail == "not due until Thu 3 Oct 2024; the days of closing after that are not known yet"


def test_a_held_task_is_decided_on_as_soon_as_its_blackout_is_ended() -> None:
    history = leading()
    history.put("t", schedule={"every_s": 60}, pin="a")
    history.must(SetBlackout(NOW_US, "move", NOW_US, NOW_US + DAY_US))
    duty = Duty("a")
    duty.observe(history.state, Ownership.of(history.state), None)
    due_us = NOW_US + 60_000_000
    step = duty.step(due_us, LEASE, {}, 8)
    assert step.entries == ()
    assert step.wake_us == NOW_US + DAY_US
    history.must(EndBlackout(due_us, "move"))
    duty.observe(history.state, Ownership.of(history.state), history.last.touched)
    assert duty.step(due_us, LEASE, {}, 8).entries == (Claim(due_us, "t", due_us, "a", 1),)


def test_public_holidays_are_extended_before_they_run_out() -> None:
    history = leading()
    keeper = CalendarKeeper()
    assert keeper.step(history.state, NOW_US) == ([], None)
    wanted = wanted_days("holidays/DE-BY", "DE-BY", NOW_US)
    assert (wanted.region, wanted.first, wanted.last) == ("DE-BY", TODAY - AHEAD_DAYS, TODAY + AHEAD_DAYS)
    history.must(SetCalendar(NOW_US, "holidays/DE-BY", (), wanted.last))
    history.must(SetCalendar(NOW_US, "closing", ()))
    assert keeper.step(history.state, NOW_US) == ([], NOW_US + LOOK_US)
    near_us = NOW_US + (AHEAD_DAYS - EXTENDED_AT_DAYS + 1) * DAY_US
    assert keeper.step(history.state, near_us - DAY_US)[0] == []
    asked = [wanted_days("holidays/DE-BY", "DE-BY", near_us)]
    assert [keeper.step(history.state, near_us + later)[0] for later in (0, 1, AGAIN_US)] == [asked, [], asked]
    assert keeper.step(history.state, near_us)[0] == asked, "the clock was set back"
