"""An entry that changes the runs of a task with `each` on all members costs about the same for each of them."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from node.state.attempts import Began
from node.state.entries import Entry
from node.state.fan_out import FanOut
from node.state.members import MarkDown
from node.state.occurrences import Start
from node.state.registry import DeleteTask
from node.state.settings import ChangeSettings
from tests.unit.node.state.given import NOW_US, History
from tests.unit.node.state.test_each import FIRST, S, on_each, take

FEW, MANY = 30, 120
SECOND = FanOut(FIRST + 60 * S, "clean", FIRST + 60 * S)


def steps(history: History, entry: Entry) -> int:
    """How many instructions of Python it takes to apply an entry, which is accepted."""
    count = 0

    def traced(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        result = history.do(entry)
    finally:
        sys.settrace(before)
    assert result.ok, result
    return count


def members(count: int, **fields: Any) -> History:
    return on_each(["a", *(f"n{number:03}" for number in range(1, count))], **fields)  # type: ignore[arg-type]


def begun(history: History) -> History:
    history.must(FanOut(FIRST, "clean", FIRST))
    for run_id in history.state.runs_of["clean"]:
        assert take(history, history.state.runs[run_id]) == "ok"
        history.must(Began(FIRST, run_id, history.state.runs[run_id].token))
    return history


def first(count: int) -> int:
    return steps(members(count), FanOut(FIRST, "clean", FIRST))


def missed(count: int) -> int:
    history = members(count, deadlines={"finish_within_s": 30})
    history.must(FanOut(FIRST, "clean", FIRST))
    return steps(history, SECOND)


def skipped(count: int) -> int:
    history = begun(members(count))
    return steps(history, SECOND)


def replaced(count: int) -> int:
    history = begun(members(count, overlap="replace"))
    for member in history.state.members.values():
        history.must(MarkDown(FIRST, member.id, member.incarnation, "silent", 1))
    return steps(history, SECOND)


def replaced_by_hand(count: int) -> int:
    history = members(count, overlap="replace")
    history.must(FanOut(FIRST, "clean", FIRST))
    return steps(history, Start(FIRST + S, "clean", None, None, None))


def queued(count: int) -> int:
    history = members(count)
    history.must(ChangeSettings(NOW_US, {"pools": {"disk": 2}}))
    history.put("clean", schedule={"every_s": 60}, each=True, uses={"disk": 1})
    return steps(history, FanOut(FIRST, "clean", FIRST))


def deleted(count: int) -> int:
    history = members(count)
    history.must(FanOut(FIRST, "clean", FIRST))
    return steps(history, DeleteTask(FIRST + 90 * S, "clean"))


@pytest.mark.parametrize("case", [first, missed, skipped, replaced, replaced_by_hand, queued, deleted])
def test_four_times_the_members_take_about_four_times_the_steps(case: Callable[[int], int]) -> None:
    few, many = case(FEW), case(MANY)
    assert many < few * MANY / FEW * 1.1, f"{few} for {FEW} members, {many} for {MANY}"
