"""The timeline's bars and where they are drawn: a takeover goes on in another lane, and what is too much is counted."""

from dataclasses import replace

from node.duty.forecast import STEPS, Forecast, MemberForecast, PlannedRun
from node.duty.timetable import TimeSpan
from node.state.value import Attempt, Run
from node.web.timeline_bars import NOBODY, TimeBar, gone_bars, planned_bars, run_bars
from node.web.timeline_chart import PAST_MAX, ROWS_MAX, WIDTH, TimelineChart, chart_of

S = 1_000_000
HOUR = 3600 * S
NOW = 1_795_000_000 * S
SPAN = TimeSpan(NOW - HOUR, NOW + HOUR)
AHEAD = Forecast(TimeSpan(NOW, NOW + HOUR), {})


def attempt(number: int, node: str, state: str, begins_s: int, ends_s: int | None) -> Attempt:
    ends_us = None if ends_s is None else NOW + ends_s * S
    return Attempt(number, node, 1, number, state, NOW + begins_s * S, NOW + begins_s * S, ends_us)  # type: ignore[arg-type]


def run(*attempts: Attempt) -> Run:
    return Run("r-1", "copying", "schedule", NOW, b"", "running", NOW, attempts=attempts)


def drawn(bars: list[TimeBar], ahead: Forecast = AHEAD) -> TimelineChart:
    return chart_of(["node-1", "node-2"], bars, ahead, SPAN, NOW)


def test_a_takeover_is_a_bar_in_another_lane_joined_by_a_line() -> None:
    taken_over = run(attempt(1, "node-1", "orphaned", -1800, -900), attempt(2, "node-2", "running", -890, None))
    lost, going_on, expected = run_bars(taken_over, NOW, 1200 * S)
    assert (lost.member, lost.look, going_on.member, going_on.look) == ("node-1", "lost", "node-2", "running")
    assert lost.said.startswith("copying, attempt 1 on node-1")
    assert lost.said.endswith("lost with its member after 15 min")
    assert (expected.begins_us, expected.ends_us) == (NOW, NOW + 310 * S)
    chart = drawn([lost, going_on, expected])
    [(path, over)] = chart.joins
    assert over
    assert path.startswith("M405.0 ")
    first, second = chart.lanes
    assert [shape.bar for shape in first.bars] == [lost]
    ran, rest = second.bars
    assert (ran.y, ran.x + ran.width) == (rest.y, rest.x), "in one row, one after the other"
    assert chart.now_x == WIDTH / 2


def test_a_retry_on_the_same_member_is_joined_by_another_line() -> None:
    bars = list(
        run_bars(run(attempt(1, "node-1", "failed", -600, -500), attempt(2, "node-1", "succeeded", -400, -300)), NOW)
    )
    assert [bar.look for bar in bars] == ["bad", "good"]
    assert [over for _, over in drawn(bars).joins] == [False]


def test_bars_at_the_same_time_are_in_rows_and_those_without_a_row_are_counted() -> None:
    [bar] = run_bars(run(attempt(1, "node-1", "succeeded", -600, -300)), NOW)
    chart = drawn([replace(bar, run_id=f"r-{n}") for n in range(ROWS_MAX + 3)])
    assert len({shape.y for shape in chart.lanes[0].bars}) == ROWS_MAX
    assert (chart.drawn, chart.not_drawn, chart.lanes[0].left_out) == (ROWS_MAX, 3, 3)
    assert not chart.lanes[1].bars


def test_what_runs_has_a_row_however_much_ended_at_the_same_time() -> None:
    bars = list(run_bars(run(attempt(1, "node-1", "running", -1, None)), NOW, 60 * S))
    [ended] = run_bars(run(attempt(1, "node-1", "succeeded", -2, -1)), NOW)
    chart = drawn([replace(ended, run_id=f"ended-{n}") for n in range(2 * ROWS_MAX)] + bars)
    running, expected = (shape for shape in chart.lanes[0].bars if shape.bar.run_id == "r-1")
    assert (running.bar.look, expected.bar.look, running.y) == ("running", "expected", expected.y)
    assert chart.lanes[0].left_out == ROWS_MAX + 1


def test_too_many_ended_runs_are_counted_except_those_that_stand_out() -> None:
    [bar] = run_bars(run(attempt(1, "node-1", "succeeded", -3000, -2999)), NOW)
    many = [replace(bar, run_id=f"r-{n}", begins_us=bar.begins_us + n * S) for n in range(5 * PAST_MAX)]
    failed = replace(bar, run_id="failed", look="bad")
    lane = drawn([*many, failed]).lanes[0]
    assert [shape.bar for shape in lane.bars] == [failed]
    assert lane.counted == 5 * PAST_MAX
    assert sum(int(step.said.split()[0]) for step in lane.counts) == 5 * PAST_MAX


def test_occurrences_ahead_are_bars_or_columns() -> None:
    moved = PlannedRun(NOW + 600 * S, "a", "node-2", "node-1", 60 * S)
    nobody = PlannedRun(NOW + 600 * S, "b", None, "node-1")
    [here] = planned_bars([moved], SPAN.until_us)
    [gone] = gone_bars([moved], SPAN.until_us)
    [unowned] = planned_bars([nobody], SPAN.until_us)
    assert (here.member, here.look, gone.member, gone.look) == ("node-2", "moved", "node-1", "gone")
    assert here.said.endswith("on node-2, moved from node-1; its last run took 1 min")
    assert unowned.member == NOBODY
    assert "how long it takes is not known" in unowned.said
    busy = MemberForecast(10_000, (100,) * STEPS, (25,) * STEPS)
    chart = drawn([here, gone, unowned], Forecast(AHEAD.span, {"node-1": busy}))
    assert [lane.member for lane in chart.lanes] == ["node-1", "node-2", NOBODY]
    step = chart.lanes[0].counts[0]
    assert (len(chart.lanes[0].counts), step.said) == (STEPS, "100 due, 25 of them moved here")
    assert (step.height, step.moved_height, chart.not_drawn) == (30, 7.5, 10_000)


def test_a_lane_of_what_is_no_member_any_more_comes_after_the_members() -> None:
    bars = list(run_bars(run(attempt(1, "node-9", "succeeded", -600, -300)), NOW))
    assert [lane.member for lane in drawn(bars).lanes] == ["node-1", "node-2", "node-9"]
    outside = [replace(bars[0], begins_us=NOW - 3 * HOUR, ends_us=NOW - 2 * HOUR)]
    assert [lane.member for lane in drawn(outside).lanes] == ["node-1", "node-2"]
