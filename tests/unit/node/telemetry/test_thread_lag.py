"""How late threads were: the worst of the last minute, and no more than that."""

import asyncio
import time

from node.telemetry.thread_lag import PART_S, PARTS, PROBE_S, Worst, watch_loop


def test_the_worst_is_told_for_a_minute_and_then_forgotten() -> None:
    worst = Worst()
    for second in range(120):
        worst.note(5.0 if second == 30 else 0.1, 1000.0 + second)
        told = worst.over_a_minute(1000.0 + second)
        if 30 <= second <= 90:
            assert told == 5.0
        if second > 30 + PART_S * (PARTS + 1):
            assert told == 0.1
    assert worst.over_a_minute(5000.0) == 0.0


def test_what_was_early_is_nothing() -> None:
    worst = Worst()
    worst.note(-1.0, 7.0)
    assert worst.over_a_minute(7.0) == 0.0


def test_a_loop_that_stands_still_is_found_late() -> None:
    async def stand_still() -> float:
        worst = Worst()
        watching = asyncio.create_task(watch_loop(worst))
        await asyncio.sleep(PROBE_S)
        time.sleep(0.2)  # noqa: ASYNC251 - it is what is looked for
        await asyncio.sleep(PROBE_S)
        watching.cancel()
        return worst.over_a_minute(time.monotonic())

    assert asyncio.run(stand_still()) >= 0.2 - PROBE_S
