"""The judgement of a phase of the measurement under load, and that a burden which goes away is missed."""

import time
from pathlib import Path
from threading import Event

import pytest

from bench.loading.judgement import BLOCKED_MS, Phase, Standing, wrong
from testkit.burden import BurdenGone, Look, meanwhile, nothing
from testkit.faults.pressure import pressure

BEFORE = Standing({"node-1": 1, "node-2": 3}, {"short": "node-1", "long": "node-2"})


def gone(look: Look) -> str:
    """What a look says, once it has something to say."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            look()
        except BurdenGone as error:
            return str(error)
        time.sleep(0.01)
    return "nothing"


def test_a_load_that_was_there_and_changed_nothing() -> None:
    assert wrong(Phase(BEFORE, BEFORE, starts=1)) == []
    assert wrong(Phase(BEFORE, BEFORE, starts=1, loop_ms=BLOCKED_MS, loop_ms_least=BLOCKED_MS)) == []


def test_whatever_changed_is_wrong() -> None:
    for incarnations in ({"node-1": 1, "node-2": 4}, {"node-1": 1}):
        assert wrong(Phase(BEFORE, BEFORE._replace(incarnations=incarnations), starts=1)) == ["marked down: node-2"]
    for owners in ({"short": "node-2", "long": "node-2"}, {"long": "node-2"}):
        assert wrong(Phase(BEFORE, BEFORE._replace(owners=owners), starts=1)) == ["moved: short"]
    assert wrong(Phase(BEFORE, BEFORE, lost=["a~1"], starts=1)) == ["lost: a~1"]
    assert wrong(Phase(BEFORE, BEFORE, said=["node-2 is taken to be down"], starts=1)) == [
        "said: node-2 is taken to be down"
    ]


def test_a_phase_in_which_nothing_began_or_no_loop_stood_still_shows_nothing() -> None:
    assert wrong(Phase(BEFORE, BEFORE, starts=0)) == ["no short task began: nothing is shown"]
    for loop_ms in (0.0, BLOCKED_MS - 1):
        [line] = wrong(Phase(BEFORE, BEFORE, starts=1, loop_ms=loop_ms, loop_ms_least=BLOCKED_MS))
        assert "it was not blocked" in line


def test_a_process_of_the_pressure_that_has_died_is_missed(tmp_path: Path) -> None:
    with pressure(tmp_path, times_over=0, memory_mib=1, disk_mib=0) as look:
        time.sleep(0.1)
        look()
    assert "writes to memory" in gone(look), "they are gone at the end"
    with pressure(tmp_path / "there is no such folder", times_over=0, memory_mib=1, disk_mib=1) as look:
        said = gone(look)
    assert "writes to the disk, has ended with 1" in said
    assert "memory" not in said


def test_a_thread_that_has_ended_is_missed() -> None:
    def fail(_: Event) -> None:
        raise ConnectionError("nobody there")

    with pytest.raises(BurdenGone, match="nobody there"), meanwhile("it is blocked", fail) as look:
        assert gone(look) == "it is blocked no more: nobody there"
    with meanwhile("it is blocked", lambda _: None) as look:
        assert "it has ended" in gone(look)


def test_a_burden_that_lasts_is_not_missed() -> None:
    worked = Event()

    def work(over: Event) -> None:
        worked.set()
        over.wait()

    with meanwhile("it is blocked", work) as look:
        assert worked.wait(20)
        look()
    with nothing() as look:
        look()


def test_a_thread_that_fails_at_the_very_end_is_missed() -> None:
    def work(over: Event) -> None:
        over.wait()
        raise ConnectionError("nobody there")

    with pytest.raises(BurdenGone, match="nobody there"), meanwhile("it is blocked", work) as look:
        look()
