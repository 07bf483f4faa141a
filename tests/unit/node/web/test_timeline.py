"""The timeline's bars and where they are drawn: a takeover goes on in another lane, and what is too much is counted."""

from dataclasses import replace

from node.duty.forecast import STEPS, Forecast, MemberForecast, PlannedRun
from node.duty.timetable import TimeSpan
from node.state.value import Attempt, Run
from node.web.timeline_bars import NOBODY, TimeBar, gone_bars, planned_bars, run_bars, say_parents
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
    for before in (ended, replace(ended, look="bad")):
        chart = drawn([replace(before, run_id=f"ended-{n}") for n in range(2 * ROWS_MAX)] + bars)
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


AFTER = {"b": ("a",), "c": ("a",), "d": ("b", "c"), "z": ("y",)}


def ran(task: str, begins_s: int, ends_s: int, at_s: int = 0, member: str = "node-1") -> TimeBar:
    """The bar of a run of an occurrence."""
    of_it = replace(run(attempt(1, member, "succeeded", begins_s, ends_s)), task=task, fire_at_us=NOW + at_s * S)
    [bar] = run_bars(replace(of_it, run_id=f"{task}~{at_s}"), NOW)
    return bar


def test_a_chain_is_joined_by_lines_of_its_own_occurrence() -> None:
    night = [ran("a", -900, -800), ran("b", -790, -700, member="node-2"), ran("c", -790, -600), ran("d", -590, -500)]
    earlier = [ran("a", -3000, -2900, -2000), ran("b", -2890, -2800, -2000)]
    others = [ran("y", -900, -800), ran("z", -790, -700, 5), ran("alone", -300, -200)]
    chart = chart_of(["node-1", "node-2"], [*night, *earlier, *others], AHEAD, SPAN, NOW, AFTER)
    assert len({chart.chain_of[bar.run_id] for bar in night}) == 1
    assert len({chart.chain_of[bar.run_id] for bar in earlier}) == 1
    assert set(chart.chain_of) == {bar.run_id for bar in (*night, *earlier)}, "z has another occurrence than y"
    numbers = [line.chain for line in chart.chains]
    assert sorted(numbers.count(number) for number in set(numbers)) == [1, 4]
    shapes = {shape.bar.run_id: shape for lane in chart.lanes for shape in lane.bars}
    one, other = shapes["a~0"], shapes["b~0"]
    path = next(line.path for line in chart.chains if line.path.endswith(f"{other.x:.1f} {other.middle:.1f}"))
    assert path.startswith(f"M{one.x + one.width:.1f} {one.middle:.1f}C")
    assert drawn(night).chains == (), "without parents there are no lines"


def test_what_did_not_run_between_two_runs_does_not_cut_the_chain() -> None:
    bars = [ran("a", -900, -800), ran("d", -590, -500)]
    parents = {**AFTER, "d": ("b",)}
    chart = chart_of(["node-1"], bars, AHEAD, SPAN, NOW, parents)
    assert (len(chart.chains), set(chart.chain_of)) == (1, {"a~0", "d~0"})
    assert say_parents(bars, parents)[1].said.endswith("; it came after a")


def test_a_line_goes_from_the_last_attempt_of_a_parent_to_the_first_of_its_child() -> None:
    def two(task: str, first_s: int, second_s: int) -> list[TimeBar]:
        tried = run(
            attempt(1, "node-1", "failed", first_s, first_s + 60),
            attempt(2, "node-2", "succeeded", second_s, second_s + 60),
        )
        return list(run_bars(replace(tried, task=task, run_id=task), NOW))

    chart = chart_of(["node-1", "node-2"], [*two("a", -900, -800), *two("b", -600, -500)], AHEAD, SPAN, NOW, AFTER)
    [line] = chart.chains
    shapes = {(shape.bar.run_id, shape.bar.attempt): shape for lane in chart.lanes for shape in lane.bars}
    last, began = shapes["a", 2], shapes["b", 1]
    assert line.path.startswith(f"M{last.x + last.width:.1f} {last.middle:.1f}C")
    assert line.path.endswith(f" {began.x:.1f} {began.middle:.1f}")
    assert len(chart.joins) == 2


def test_what_was_run_alone_by_hand_is_in_no_chain() -> None:
    alone = replace(run(attempt(1, "node-1", "succeeded", -900, -800)), trigger="manual")
    bars = [*run_bars(replace(alone, task="a", run_id="a"), NOW), *run_bars(replace(alone, task="b", run_id="b"), NOW)]
    assert chart_of(["node-1"], bars, AHEAD, SPAN, NOW, AFTER).chains == ()
    assert say_parents(bars, AFTER) == bars


def test_a_bar_says_after_which_tasks_it_came() -> None:
    bars = [ran("a", -900, -800), ran("b", -790, -700), ran("c", -790, -600), ran("d", -590, -500), ran("z", -90, -80)]
    said = {bar.task: bar.said for bar in say_parents(bars, AFTER)}
    assert said["b"].endswith("; it came after a")
    assert said["d"].endswith("; it came after b and c")
    assert "came after" not in said["a"] + said["z"]
