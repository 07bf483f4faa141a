"""What is held in the state beside what runs here: launch, give back, cancel, kill, hand over."""

from dataclasses import replace

from node.duty.attempts import VANISHED_US
from node.duty.duty import Duty
from node.duty.step import CancelWork, HandOver, KillAttempt, Launch, LeaseView, LocalAttempt
from node.state.attempts import Finish
from node.state.claims import Claim
from node.state.value import Attempt, Result, Run, State
from tests.unit.node.duty.given import LEASE, NOW, Owners, S, duty, run, task, world

ROW = task("t")


def claimed_here(claimed_at_us: int = NOW, answer: Result | None = None) -> tuple[Duty, State, Run]:
    """A duty that has proposed a claim of a waiting run, and the state in which it was accepted."""
    waiting = run(ROW, "waiting")
    one = duty(world(ROW, waiting))
    (claim,) = one.step(NOW, LEASE, {}, 8).entries
    assert isinstance(claim, Claim)
    held = replace(
        waiting,
        state="claimed",
        node="a",
        incarnation=1,
        token=7,
        attempts=(Attempt(1, "a", 1, 7, "claimed", claimed_at_us),),
    )
    state = world(ROW, held)
    one.observe(state, Owners(), {"t"})
    one.answered(claim, answer, NOW)
    return one, state, held


def test_a_claim_of_this_lease_period_is_launched_once() -> None:
    one, _, held = claimed_here(answer=Result("ok"))
    assert one.step(NOW, LEASE, {}, 8).orders == (Launch(held),)
    assert one.step(NOW, LEASE, {"t~1": LocalAttempt(7)}, 7).orders == ()


def test_a_claim_whose_answer_was_lost_is_launched_all_the_same() -> None:
    one, _, held = claimed_here(answer=None)
    assert one.step(NOW, LEASE, {}, 8).orders == (Launch(held),)


def test_a_claim_proposed_before_a_lapse_is_given_back_unstarted() -> None:
    one, _, _ = claimed_here(answer=Result("ok"))
    assert one.step(NOW, None, {}, 8).orders == ()
    step = one.step(NOW + S, LeaseView(1, 2), {}, 8)
    assert (step.entries, step.orders) == ((Finish(NOW + S, "t~1", 7, "not_started"),), ())
    assert one.step(NOW + S, LeaseView(1, 2), {}, 8).entries == (), "once at a time"


def test_a_claim_that_was_not_proposed_here_is_given_back() -> None:
    one = duty(world(ROW, run(ROW, "claimed")))
    assert one.step(NOW, LEASE, {}, 8).entries == (Finish(NOW, "t~1", 1, "not_started"),)


def test_of_two_claims_of_one_run_the_accepted_one_is_told_by_its_time() -> None:
    # The first is unknown, the lease lapses, the second is proposed; then the first turns out to be in the log.
    waiting = run(ROW, "waiting")
    one = duty(world(ROW, waiting))
    (first,) = one.step(NOW, LEASE, {}, 8).entries
    one.answered(first, None, NOW)
    (second,) = one.step(NOW + S, LeaseView(1, 2), {}, 8).entries
    held = replace(waiting, state="claimed", node="a", incarnation=1, token=7)
    for at_us, launched in ((NOW + S, True), (NOW, False)):
        attempts = (Attempt(1, "a", 1, 7, "claimed", at_us),)
        one.observe(world(ROW, replace(held, attempts=attempts, token=at_us)), Owners(), {"t"})
        one.answered(second, Result("held" if at_us == NOW else "ok"), NOW + S)
        step = one.step(NOW + 2 * S, LeaseView(1, 2), {}, 8)
        assert [type(order) for order in step.orders] == ([Launch] if launched else [])
        assert [type(entry) for entry in step.entries] == ([] if launched else [Finish])


def test_what_another_incarnation_claimed_is_left_to_the_join_that_orphans_it() -> None:
    one = duty(world(ROW, run(ROW, "running", incarnation=0)))
    step = one.step(NOW, LEASE, {}, 8)
    assert (step.entries, step.orders) == ((), ())


def test_a_claim_of_a_run_that_is_being_cancelled_is_finished_and_not_launched() -> None:
    one, state, held = claimed_here(answer=Result("ok"))
    state = replace(state, runs=state.runs.set("t~1", replace(held, cancelling="asked")))
    one.observe(state, Owners(), {"t"})
    step = one.step(NOW, LEASE, {}, 8)
    assert (step.entries, step.orders) == ((Finish(NOW, "t~1", 7, "cancelled"),), ())


def test_an_attempt_is_not_launched_beside_an_older_one_of_its_run_that_still_runs_here() -> None:
    one, _, _ = claimed_here(answer=Result("ok"))
    step = one.step(NOW, LEASE, {"t~1": LocalAttempt(3)}, 7)
    assert step.orders == (KillAttempt("t~1", 3),)
    assert [type(order) for order in one.step(NOW, LEASE, {}, 8).orders] == [Launch]


def test_a_run_whose_token_was_taken_over_is_killed_without_any_lease() -> None:
    local = {"t~1": LocalAttempt(1)}
    for state in (
        world(ROW),
        world(ROW, run(ROW, "running", token=2)),
        world(ROW, run(ROW, "running", node="b")),
        world(ROW, run(ROW, "orphaned", token=1)),
    ):
        one = duty(state)
        assert one.step(NOW, None, local, 8).orders == (KillAttempt("t~1", 1),)
        assert one.step(NOW, LEASE, local, 8).orders == ()


def test_an_attempt_whose_finish_is_under_way_is_left_alone() -> None:
    one = duty(world(ROW))
    assert one.step(NOW, LEASE, {"t~1": LocalAttempt(1, ended=True)}, 8).orders == ()


def test_a_run_to_be_cancelled_is_told_once_and_why() -> None:
    one = duty(world(run(ROW, "running", cancelling="deleted")))
    local = {"t~1": LocalAttempt(1)}
    assert one.step(NOW, None, local, 8).orders == (CancelWork("t~1", 1, "deleted"),)
    assert one.step(NOW, LEASE, local, 8).orders == ()


def test_a_launched_attempt_that_vanished_is_given_up_in_the_end() -> None:
    one, _, _ = claimed_here(answer=Result("ok"))
    one.step(NOW, LEASE, {}, 8)
    step = one.step(NOW + 1, LEASE, {}, 8)
    assert (step.orders, step.entries, step.wake_us) == ((), (), NOW + 1 + VANISHED_US)
    step = one.step(NOW + 1 + VANISHED_US, LEASE, {}, 8)
    assert [(type(entry), getattr(entry, "end", None)) for entry in step.entries] == [(Finish, "failed")]


CONTINUOUS = [task(name, since_us=NOW, schedule={"continuous": True}) for name in "pqrs"]
HELD = {f"{name}~1": LocalAttempt(1) for name in "pqrs"}


def test_continuous_runs_are_handed_over_to_their_owner_two_at_a_time() -> None:
    runs = [run(row, "running") for row in CONTINUOUS]
    owners = Owners(dict.fromkeys("pqrs", "b"))
    one = duty(world(*CONTINUOUS, *runs), owners)
    assert one.step(NOW, LEASE, HELD, 4).orders == (HandOver("p~1", 1), HandOver("q~1", 1))
    assert one.step(NOW, LEASE, HELD, 4).orders == ()
    # p is between two members: it counts until it is claimed, and then makes room for the next.
    one.observe(world(*CONTINUOUS, run(CONTINUOUS[0], "waiting"), *runs[1:]), owners, {"p"})
    held = {run_id: attempt for run_id, attempt in HELD.items() if run_id != "p~1"}
    assert one.step(NOW, LEASE, held, 5).orders == ()
    one.observe(world(*CONTINUOUS, run(CONTINUOUS[0], "running", node="b"), *runs[1:]), owners, {"p"})
    assert one.step(NOW, LEASE, held, 5).orders == (HandOver("r~1", 1),)


ONE = {"p~1": LocalAttempt(1)}


def test_nothing_is_handed_over_while_a_failover_waits() -> None:
    lost = task("lost")
    runs = [run(CONTINUOUS[0], "running"), run(lost, "orphaned")]
    owners = Owners({"p": "b", "lost": "c"})
    one = duty(world(CONTINUOUS[0], lost, *runs), owners)
    assert one.step(NOW, LEASE, ONE, 4).orders == ()
    one.observe(world(CONTINUOUS[0], lost, *runs), Owners({"p": "b", "lost": None}), ())
    assert one.step(NOW, LEASE, ONE, 4).orders == (HandOver("p~1", 1),), "a run that nobody may take up holds up no one"


def test_the_end_of_a_grace_holds_hand_overs_up() -> None:
    lost = task("lost")
    owners = Owners({"p": "b", "lost": "c"})
    one = duty(world(CONTINUOUS[0], lost, run(CONTINUOUS[0], "running"), run(lost, "orphaned", due_us=NOW + S)), owners)
    assert one.step(NOW, LEASE, {}, 4).orders == ()
    assert one.step(NOW + S, LEASE, ONE, 4).orders == ()


def test_a_draining_member_hands_over_and_claims_nothing() -> None:
    due = task("due", since_us=NOW - 10 * S, schedule={"every_s": 10})
    state = world(CONTINUOUS[0], due, run(CONTINUOUS[0], "running"))
    state = replace(state, members=state.members.set("a", replace(state.members["a"], status="draining")))
    step = duty(state, Owners({"p": "b"})).step(NOW, LEASE, ONE, 4)
    assert (step.entries, step.orders) == ((), (HandOver("p~1", 1),))


def test_a_continuous_run_whose_task_nobody_may_run_stays_where_it_is() -> None:
    one = duty(world(CONTINUOUS[0], run(CONTINUOUS[0], "running")), Owners({"p": None}))
    assert one.step(NOW, LEASE, ONE, 4).orders == ()


def test_runs_that_are_not_continuous_are_never_moved() -> None:
    one = duty(world(ROW, run(ROW, "running")), Owners({"t": "b"}))
    assert one.step(NOW, LEASE, {"t~1": LocalAttempt(1)}, 4).orders == ()
