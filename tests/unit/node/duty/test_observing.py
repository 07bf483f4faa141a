"""All tasks have changed, or very many: they are looked at a few at a time, and none is left out."""

from node.duty.duty import SCHEDULED_A_STEP, Duty
from node.state.claims import Claim
from node.state.value import State
from tests.unit.node.duty.given import LEASE, NOW, Owners, S, task, world

EVERY = {"every_s": 10}
MANY = 3 * SCHEDULED_A_STEP + 1


def many(count: int = MANY, since_us: int = NOW - 10 * S) -> State:
    return world(*(task(f"t-{number}", since_us=since_us, schedule=EVERY) for number in range(count)))


def claimed(one: Duty, steps: int) -> tuple[set[str], int]:
    """What is claimed in so many steps, and in how many of them more was to be done at once."""
    claims: set[str] = set()
    at_once = 0
    for _ in range(steps):
        step = one.step(NOW, LEASE, {}, 10 * MANY)
        claims |= {entry.task for entry in step.entries if isinstance(entry, Claim)}
        at_once += step.wake_us is not None and step.wake_us <= NOW
    return claims, at_once


def test_a_step_looks_at_so_many_and_asks_for_the_next_one() -> None:
    one = Duty("a")
    one.observe(many(), Owners(), None)
    # Seen in `look`, and again at the beginning of the step; the rest is not known to be due yet.
    first, at_once = claimed(one, 1)
    assert 0 < len(first) <= 2 * SCHEDULED_A_STEP
    assert at_once == 1
    rest, _ = claimed(one, 20)
    assert len(first | rest) == MANY


def test_it_is_looked_at_without_a_lease_too() -> None:
    one = Duty("a")
    one.observe(many(), Owners(), None)
    steps = 1
    while one.step(NOW, None, {}, 8).wake_us == NOW:
        steps += 1
    assert MANY // SCHEDULED_A_STEP <= steps <= MANY // SCHEDULED_A_STEP + 2
    assert claimed(one, 10)[0] == set(many().tasks)


def test_what_changes_meanwhile_is_looked_at_as_it_is_then() -> None:
    one = Duty("a")
    one.observe(many(), Owners(), None)
    later = many(since_us=NOW)
    one.observe(later, Owners(), frozenset(later.tasks))
    claims, _ = claimed(one, 20)
    assert claims == set(), "what is not due any more was claimed"
    assert one.step(NOW + 10 * S, LEASE, {}, 8).entries


def test_a_task_that_is_gone_is_not_claimed() -> None:
    one = Duty("a")
    one.observe(many(5), Owners(), None)
    one.observe(many(3), Owners(), None)
    assert claimed(one, 5)[0] == {"t-0", "t-1", "t-2"}
