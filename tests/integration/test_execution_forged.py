"""Frames that code in a worker sends by itself: neither node nor supervisor takes harm, and the attempt ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from node.execution.attempt_events import AttemptStarted, CheckpointAsked, Progressed
from testkit.execution.attempts import Attempts, play

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("kinds_for_tests")]

FORGER = "testkit.execution.kinds_for_tests:Forger"

RESULTS = {
    "no JSON": "{",
    "nested too deeply": "[" * 60_000,
    "no object": "[1]",
    "no number": json.dumps({"a": float("nan")}),
    "too large a number": json.dumps({"a": 2**70}),
    "too large": json.dumps({"a": "x" * 70_000}),
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=list(RESULTS))
def test_a_result_that_is_none_fails_the_attempt(tmp_path: Path, result: str) -> None:
    async def scene(made: Attempts) -> None:
        made.launch({"what": f"done:{result}"}, FORGER)
        ended = await made.any_ended()
        assert (ended.end, ended.result, ended.retry) == ("failed", None, False)
        assert str(ended.error).startswith("the worker sent a result that cannot be read: ")

    play(tmp_path, scene)


def test_one_checkpoint_at_a_time_comes_to_the_node(tmp_path: Path) -> None:
    """A worker that does not wait for answers filled the node's memory."""

    async def scene(made: Attempts) -> None:
        order = made.launch({"what": "checkpoints"}, FORGER)
        for number in range(1, 4):
            asked = await made.asked()
            assert asked.sequence == number
            assert not [event for event in made.seen if isinstance(event, CheckpointAsked) and event.sequence > number]
            made.runner.checkpoint_done(order.run_id, order.token, number, "ok")
        made.runner.kill(order.run_id, order.token)
        assert (await made.ended(order)).end == "handed_over"

    play(tmp_path, scene)


def test_a_checkpoint_that_is_too_large_ends_the_attempt(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        made.launch({"what": "large checkpoint"}, FORGER)
        ended = await made.any_ended()
        assert ended.end == "failed"
        assert "the worker sent an invalid frame: a checkpoint of 70000 bytes" in str(ended.error)

    play(tmp_path, scene)


def test_a_flood_of_frames_after_the_workers_end_does_not_keep_its_supervisor(tmp_path: Path) -> None:
    """What it had started held the channel, and sent without end: the lease and the node were not heard any more."""

    async def scene(made: Attempts) -> None:
        order = made.launch({"what": "flood"}, FORGER)
        assert (await made.ended(order)).end == "failed"

    play(tmp_path, scene)


def test_a_start_is_told_once(tmp_path: Path) -> None:
    """Each was committed in the cluster."""

    async def scene(made: Attempts) -> None:
        order = made.launch({"what": "started"}, FORGER)
        ended = await made.ended(order)
        assert (ended.end, ended.error) == ("succeeded", None)
        assert len([event for event in made.seen if isinstance(event, AttemptStarted)]) == 1

    play(tmp_path, scene)


def test_a_report_behind_all_that_a_channel_holds_is_read(tmp_path: Path) -> None:
    """The worker has ended before its supervisor reads any of it. 256 frames were read, and the run was failed."""

    async def scene(made: Attempts) -> None:
        ended = await made.ended(made.launch({"what": "ends unheard"}, FORGER))
        assert (ended.end, ended.error) == ("succeeded", None)

    play(tmp_path, scene)


def test_a_report_is_the_last_word(tmp_path: Path) -> None:
    """What came after it was taken, a checkpoint too."""

    async def scene(made: Attempts) -> None:
        ended = await made.ended(made.launch({"what": "reports"}, FORGER))
        assert (ended.end, ended.result) == ("succeeded", {"first": 1})
        assert not [event for event in made.seen if isinstance(event, Progressed | CheckpointAsked)]

    play(tmp_path, scene)


def test_a_worker_that_reports_on_and_on_is_ended(tmp_path: Path) -> None:
    """Each report gave it another second, for ever, and took its timeout away."""

    async def scene(made: Attempts) -> None:
        assert (await made.ended(made.launch({"what": "reports on"}, FORGER))).end == "succeeded"

    play(tmp_path, scene)


FRAMES = {
    "a progress without end": ["Progress", 1.0, float("inf"), "rows"],
    "a progress that is no number": ["Progress", float("nan"), None, "rows"],
    "a unit that is a text": ["Progress", 1.0, None, "x" * 100_000],
    "no frame": ["Nothing"],
    "a field too many": ["Started", 1],
    "a field of another type": ["Done", 1, False],
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=list(FRAMES))
def test_what_no_worker_sends_ends_the_attempt(tmp_path: Path, frame: list[Any]) -> None:
    """A worker that did not end at that went on for ever. A progress without end broke the page of its task."""

    async def scene(made: Attempts) -> None:
        ended = await made.ended(made.launch({"what": f"frame:{json.dumps(frame)}"}, FORGER))
        assert ended.end == "failed"
        assert "the worker sent an invalid frame: " in str(ended.error)

    play(tmp_path, scene)


@pytest.mark.parametrize("frame", [["Ended", "succeeded", "{}", None, True, None, False], ["Hello", 1], ["Kill"]])
def test_frames_of_others_are_not_a_workers(tmp_path: Path, frame: list[Any]) -> None:
    async def scene(made: Attempts) -> None:
        order = made.launch({"what": f"frame:{json.dumps(frame)}"}, FORGER)
        await made.started(order)
        made.runner.kill(order.run_id, order.token)
        assert (await made.ended(order)).end == "handed_over"

    play(tmp_path, scene)
