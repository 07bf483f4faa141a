"""How late threads were: the worst of the last minute, and how often the loop is probed."""

import asyncio
import time

from node.telemetry.thread_lag import (
    BUSY_SHARE,
    IDLE_AFTER_S,
    IDLE_PROBE_S,
    LATE_S,
    PART_S,
    PARTS,
    PROBE_S,
    ProbePace,
    Worst,
    watch_loop,
)


def test_the_worst_is_kept_for_a_minute_and_then_dropped() -> None:
    worst = Worst()
    for second in range(120):
        worst.note(5.0 if second == 30 else 0.1, 1000.0 + second)
        told = worst.over_a_minute(1000.0 + second)
        if 30 <= second <= 90:
            assert told == 5.0
        if second > 30 + PART_S * (PARTS + 1):
            assert told == 0.1
    assert worst.over_a_minute(5000.0) == 0.0


def test_a_negative_lag_counts_as_none() -> None:
    worst = Worst()
    worst.note(-1.0, 7.0)
    assert worst.over_a_minute(7.0) == 0.0


def test_an_idle_process_is_probed_seldom_and_a_late_or_busy_one_often() -> None:
    def idle() -> ProbePace:
        pace, waits = ProbePace(), [PROBE_S]
        while waits[-1] == PROBE_S:
            waits.append(pace.next_s(waits[-1], 0.0, 0.0))
        assert waits[-1] == IDLE_PROBE_S
        assert len(waits) * PROBE_S >= IDLE_AFTER_S
        return pace

    assert idle().next_s(IDLE_PROBE_S, LATE_S / 2, 0.0) == IDLE_PROBE_S
    assert idle().next_s(IDLE_PROBE_S, LATE_S, 0.0) == PROBE_S
    assert idle().next_s(IDLE_PROBE_S, 0.0, IDLE_PROBE_S * BUSY_SHARE) == PROBE_S


def test_a_blocked_loop_is_found_late() -> None:
    async def block() -> float:
        worst = Worst()
        watching = asyncio.create_task(watch_loop(worst))
        await asyncio.sleep(PROBE_S)
        time.sleep(0.2)  # noqa: ASYNC251 - it is what is looked for
        await asyncio.sleep(PROBE_S)
        watching.cancel()
        return worst.over_a_minute(time.monotonic())

    assert asyncio.run(block()) >= 0.2 - PROBE_S
