"""A duty, being done: what is launched, and what is committed."""

from node.duty.hold import hold_of
from node.duty.room import KindTerms
from node.duty.step import LeaseView
from node.execution.attempt_events import AttemptFrozen, AttemptThawed, Progressed
from node.liveness.wall_clock import now_us
from node.raft.errors import NoQuorum, OutcomeUnknown
from node.state.attempts import Began, Cancel, Checkpoint, Finish
from node.state.claims import Claim
from node.state.members import MarkDown
from tests.unit.node.loop import Naps, serving, turns, until
from tests.unit.node.working import Work, ended


def test_a_run_is_claimed_launched_once_and_its_outcome_committed() -> None:
    async def scenario() -> None:
        work = Work()
        order = await work.launch()
        work.starts(order)
        await until(lambda: work.run(order).state == "running")
        work.ends(order, result={"rows": 3}, log_truncated=True)
        await until(lambda: not work.controller.held)
        assert ended(work) == ["succeeded"]
        assert work.history.ended[0].result == {"rows": 3}
        assert work.history.ended[0].run.attempts[-1].log_truncated
        await turns()
        assert [type(entry) for entry in work.entries] == [Claim, Began, Finish]
        assert len(work.runner.launched) == 1

    serving(scenario())


def test_the_runner_is_told_of_what_is_due_soon() -> None:
    async def scenario() -> None:
        work = Work()
        work.enter_task("later", now_us(), schedule={"every_s": 3600})
        await turns()
        assert not work.runner.expected
        work.enter_task("soon", now_us(), schedule={"every_s": 0.9})
        await until(lambda: work.runner.expected)

    serving(scenario())


def test_nothing_is_claimed_without_a_lease_and_as_soon_as_there_is_one() -> None:
    async def scenario() -> None:
        work = Work()
        work.lease = None
        work.due()
        await turns()
        assert work.entries == []
        work.lease = LeaseView(1, 2)
        work.controller.wake()
        await until(lambda: work.runner.launched)

    serving(scenario())


def test_nothing_is_claimed_while_the_member_stands_aside() -> None:
    async def scenario() -> None:
        work = Work()
        work.wrong = "no room on its disk"
        work.due()
        await turns()
        assert work.of(Claim) == []
        work.wrong = ""
        work.controller.wake()
        await until(lambda: work.runner.launched)

    serving(scenario())


def test_a_claim_that_is_answered_after_a_lapse_is_given_back_unstarted() -> None:
    """Section 6: a claim that was proposed before the lease lapsed is not started after it."""

    async def scenario() -> None:
        work = Work()
        work.slow = {Claim}
        work.due()
        await until(lambda: work.waiting)
        work.lease = LeaseView(1, 2)
        work.slow.clear()
        work.answer()
        await until(lambda: work.runner.launched)
        assert [finish.end for finish in work.of(Finish)] == ["not_started"]
        assert [order.token for order in work.runner.launched] == [2]

    serving(scenario())


def test_no_more_attempts_than_there_is_room_for_and_the_others_say_that_they_wait() -> None:
    async def scenario() -> None:
        work = Work(max_runs=1)
        order = await work.launch("one")
        work.due("two")
        await turns()
        assert list(work.controller.waiting) == ["two"]
        hold = hold_of(work.controller.view_of("two", lease=True))
        assert hold is not None
        assert (hold.code, hold.runs) == ("max_runs", (order.run_id,))
        assert hold_of(work.controller.view_of("one", lease=True)) is None
        work.ends(order)
        await until(lambda: len(work.runner.launched) == 2)
        assert work.controller.waiting == {}

    serving(scenario())


def test_a_checkpoint_is_answered_when_it_is_committed() -> None:
    async def scenario() -> None:
        work = Work()
        order = await work.launch()
        work.slow = {Checkpoint}
        work.asks(order, b"1")
        await until(lambda: work.waiting)
        assert work.runner.answered == []
        work.answer()
        await until(lambda: work.runner.answered)
        assert work.runner.answered == ["ok"]
        assert work.run(order).checkpoint == b"1"

    serving(scenario())


def test_a_checkpoint_whose_outcome_is_unknown_is_proposed_again_under_its_id_before_anything_else_is_said() -> None:
    """A copy that comes late must not take the run back behind a later checkpoint."""

    async def scenario() -> None:
        work = Work()
        order = await work.launch()
        work.trouble = {Checkpoint: [OutcomeUnknown(), NoQuorum()]}
        work.asks(order, b"1")
        work.asks(order, b"2", sequence=2)
        await until(lambda: len(work.runner.answered) == 2)
        assert [entry.data for entry in work.of(Checkpoint)] == [b"1", b"1", b"1", b"2"]
        places = [index for index, entry in enumerate(work.entries) if isinstance(entry, Checkpoint)]
        assert len({work.ids[place].sequence for place in places}) == 2
        assert work.run(order).checkpoint == b"2"

    serving(scenario())


def test_a_checkpoint_that_is_too_large_is_refused_and_the_work_goes_on() -> None:
    async def scenario() -> None:
        work = Work()
        order = await work.launch()
        work.too_large = lambda entry: isinstance(entry, Checkpoint)
        work.asks(order, b"much")
        await until(lambda: work.runner.answered)
        assert work.runner.answered == ["too-large"]
        assert work.runner.told == []

    serving(scenario())


def test_what_was_taken_over_is_killed_and_its_words_are_not_committed() -> None:
    """Invariant 2: nothing carrying an old token changes the state."""

    async def scenario() -> None:
        work = Work()
        order = await work.launch()
        work.enter(MarkDown(now_us(), "a", 1, "silent", 0))
        work.history.back("a")
        work.controller.observe(work.history.state, work.owners, None)
        work.lease = LeaseView(2, 2)
        await until(lambda: ("kill", order.token) in work.runner.told)
        work.asks(order, b"old")
        await until(lambda: work.runner.answered)
        assert work.runner.answered == ["fenced"]
        work.ends(order)
        await until(lambda: len(work.runner.launched) == 2)
        assert ended(work) == []
        assert work.run(order).checkpoint is None

    serving(scenario())


def test_an_end_waits_for_a_majority_and_keeps_its_place_until_then() -> None:
    async def scenario() -> None:
        work = Work(naps=Naps(held=True))
        order = await work.launch_and_end_uncommitted(1)
        assert work.controller.held[order.run_id].ended
        work.naps.wake()
        await until(lambda: not work.controller.held)
        assert ended(work) == ["succeeded"]

    serving(scenario())


def test_an_end_is_let_be_when_the_run_is_somebody_elses_meanwhile() -> None:
    async def scenario() -> None:
        work = Work(naps=Naps(held=True))
        await work.launch_and_end_uncommitted(100)
        work.lease = None
        work.enter(MarkDown(now_us(), "a", 1, "silent", 0))
        work.naps.wake()
        await until(lambda: not work.controller.held)
        assert len(work.of(Finish)) == 1

    serving(scenario())


def test_what_is_to_be_cancelled_is_told_once() -> None:
    async def scenario() -> None:
        work = Work()
        order = await work.launch()
        work.enter(Cancel(now_us(), order.run_id))
        await turns()
        assert work.runner.told == [("cancel", order.token)]
        work.ends(order, "cancelled")
        await until(lambda: work.history.ended)
        assert ended(work) == ["cancelled"]

    serving(scenario())


def test_progress_is_known_while_the_attempt_runs_and_of_the_present_one_only() -> None:
    async def scenario() -> None:
        work = Work()
        order = await work.launch()
        for token in (order.token + 7, order.token):
            work.controller.on_event(Progressed(order.run_id, token, float(token), None, "rows"))
        assert work.controller.progress[order.run_id].token == order.token
        work.ends(order)
        await until(lambda: not work.controller.held)
        assert work.controller.progress == {}

    serving(scenario())


def test_a_frozen_attempt_is_known_to_be_until_it_is_thawed_or_ends() -> None:
    async def scenario() -> None:
        work = Work()
        order = await work.launch()
        before_us = now_us()
        work.controller.on_event(AttemptFrozen(order.run_id, order.token + 7))
        assert work.controller.frozen_since_us == {}
        work.controller.on_event(AttemptFrozen(order.run_id, order.token))
        assert before_us <= work.controller.frozen_since_us[order.run_id] <= now_us()
        work.controller.on_event(AttemptThawed(order.run_id, order.token))
        assert work.controller.frozen_since_us == {}
        work.controller.on_event(AttemptFrozen(order.run_id, order.token))
        work.ends(order)
        await until(lambda: not work.controller.held)
        assert work.controller.frozen_since_us == {}
        assert [type(entry) for entry in work.entries] == [Claim, Finish], "nothing of it is replicated"

    serving(scenario())


def test_the_runner_is_told_what_to_prepare_for_what_is_due_soon() -> None:
    async def scenario() -> None:
        work = Work(kinds={"command": KindTerms("engines:start", "ROTA_ENGINES", 1)})
        work.enter_task("later", now_us(), schedule={"every_s": 3600})
        await until(lambda: work.runner.prepared == {"engines:start": (0, 0)})
        work.enter_task("soon", now_us(), schedule={"every_s": 9})
        await until(lambda: work.runner.prepared == {"engines:start": (1, 1)})
        order = await work.launch("now")
        await until(lambda: work.runner.prepared == {"engines:start": (0, 0)})
        work.due("next")
        await until(lambda: work.controller.waiting)
        assert work.controller.waiting["next"].bound in work.controller.full
        work.ends(order)
        await until(lambda: len(work.runner.launched) == 2)

    serving(scenario())
