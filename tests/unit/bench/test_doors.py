"""The judgement of an attack on a cluster at work, and what a stranger may be told."""

from dataclasses import replace
from typing import Final

import pytest

from bench.doors import guesses
from bench.doors.conversation import Tally
from bench.doors.judgement import (
    GROWTH_MAX_MIB,
    HISTORY_MAX_BYTES_PER_HOUR,
    LOG_MAX_BYTES,
    P99_MAX_MS,
    Span,
    Trial,
    p,
    wrong,
    wrong_history,
)
from node.liveness import wire

QUIET: Final = Span([2.0] * 200, [], 100.0, 0, 0, 90.0)
HELD: Final = Trial(QUIET, QUIET, QUIET, Tally(opened=500, answered=600), least=500)


def test_an_attack_that_changes_little_is_borne() -> None:
    during = Span([2.0] * 197 + [P99_MAX_MS] * 3, [], 100.0, 15, LOG_MAX_BYTES, 90 + GROWTH_MAX_MIB)
    assert wrong(replace(HELD, during=during)) == []
    assert wrong(replace(HELD, asks=True, least=600)) == []
    busy = QUIET._replace(passed_over=10)
    assert wrong(replace(HELD, before=busy, during=QUIET._replace(passed_over=25))) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"answers_ms": [2.0] * 197 + [P99_MAX_MS + 1] * 3}, "p99 was 2001 ms"),
        ({"answers_ms": []}, "answered nothing"),
        ({"failures": ["TimeoutError()"]}, "1 requests were not answered, the first: TimeoutError()"),
        ({"passed_over": 16}, "16% more of what was due"),
        ({"log_bytes": LOG_MAX_BYTES + 1}, "bytes of log"),
        ({"memory_mib": 91 + GROWTH_MAX_MIB}, "grew by 129 MiB"),
        ({"due": 0.0}, "nothing was due"),
    ],
)
def test_each_promise_that_does_not_hold_is_told(changed: dict[str, object], said: str) -> None:
    [line] = wrong(replace(HELD, during=QUIET._replace(**changed)))  # type: ignore[arg-type]
    assert said in line


def test_a_node_that_is_down_and_a_stranger_that_was_told_something() -> None:
    assert wrong(replace(HELD, down=["node-2"])) == ["down: node-2"]
    [line] = wrong(replace(HELD, tally=Tally(opened=500, leaked=1)))
    assert line.startswith("1 strangers were told more")


def test_an_attack_that_was_not_there_or_not_to_be_seen_shows_nothing() -> None:
    assert wrong(replace(HELD, least=501)) == ["the attack was not there: 500 connections, not 501"]
    assert wrong(replace(HELD, least=601, asks=True)) == ["the attack was not there: 600 answers, not 601"]
    for span in ("before", "after"):
        busy = replace(HELD, **{span: QUIET._replace(passed_over=11)})  # type: ignore[arg-type]
        assert not busy.shows
        assert wrong(busy) == ["the machine was busy without an attack: 11% skipped or missed; nothing is shown"]
    assert not replace(HELD, after=QUIET._replace(due=0.0)).shows


def test_the_growth_of_finished_runs() -> None:
    assert wrong_history(HISTORY_MAX_BYTES_PER_HOUR // 60, 60, 600, 600) == []
    assert len(wrong_history(HISTORY_MAX_BYTES_PER_HOUR // 60 + 1, 60, 600, 600)) == 1
    assert wrong_history(0, 60, 299, 600) == ["299 of 600 occurrences were skipped: nothing is shown"]


def test_a_percentile_of_nothing_is_not_zero() -> None:
    assert [p([1.0, 2.0, 3.0, 4.0], percent) for percent in (1, 50, 99)] == [1.0, 2.0, 4.0]
    with pytest.raises(ValueError, match="nothing was measured"):
        p([], 50)


def test_a_stranger_is_told_a_greeting_and_a_refusal_and_nothing_else() -> None:
    greeting = wire.MAGIC + bytes(wire.NONCE_BYTES)
    told = {
        greeting: (1, 0),
        greeting + wire.REFUSAL: (1, 0),
        greeting + bytes(16): (1, 1),
        greeting + wire.REFUSAL + bytes(16): (1, 1),
        b"": (0, 0),
        wire.MAGIC[:3]: (0, 0),
        b"other": (0, 1),
    }
    for heard, counts in told.items():
        tally = Tally()
        guesses.judge(tally, heard, wire.MAGIC, guesses.GREETING_OF_HEARTBEAT, wire.REFUSAL)
        assert (tally.answered, tally.leaked) == counts, heard
