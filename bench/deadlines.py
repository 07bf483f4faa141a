"""How long a new leader takes to judge the deadlines of all tasks, and how long its loop stands still at most.

    python -m bench.deadlines [--tasks 100000]

One core, no sockets: the judge of `node.duty.deadlines` on a state as `apply` made it. First nothing is late, as when
a leader is lost on a good day; then one deadline of each task is, as after an outage, and each entry is applied.
"""

import time
from dataclasses import dataclass
from typing import Final

from bench.beginning import options_of
from node.duty.deadlines import SETTLED_US, DeadlineJudge
from node.runtime.gc_tuning import collect_in_short
from node.state.apply import apply
from node.state.deadlines import Breached
from node.state.entries import Entry, Proposal, ProposalId, Seed
from node.state.members import FoundCluster, TakeLead
from node.state.registry import Put, PutTasks
from node.state.value import RULES, State
from tasks.definition.spec import Spec

NOW_US: Final = 1_800_000_000_000_000
EVERY_S: Final = 900
WITHIN_S: Final = 60
A_LIST: Final = 1000
"""Tasks that one entry registers."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A judge's work until nothing was left to look at, in seconds: the steps all together, and the longest."""

    entries: list[Breached]
    steps: int
    all_s: float
    longest_s: float


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = options_of(__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    count = parser.parse_args(arguments).tasks
    collect_in_short()  # as a node does
    ledger = registered(count)
    state = ledger.state
    _say("a new leader judges them, nothing is late", judged(state, NOW_US))
    late_us = NOW_US + (EVERY_S + WITHIN_S) * 1_000_000 + SETTLED_US
    late = judged(state, late_us)
    assert len(late.entries) == count, f"{len(late.entries)} of {count} are late"
    _say("each is late", late)
    begun_s = time.perf_counter()
    for entry in late.entries:
        ledger.add(entry)
    took_s = time.perf_counter() - begun_s
    state = ledger.state
    assert all(row.breaches for row in state.tasks.values())
    print(f"  {'each breach is applied':42} {took_s:6.2f} s   {took_s / count * 1e6:,.0f} us each")
    again = judged(state, late_us)
    assert not again.entries, "a breach is marked once"
    _say("the leader after it", again)


class Ledger:
    """Entries of one proposer, applied one after the other to `state`."""

    def __init__(self) -> None:
        self.state = State()
        self._sequence = 0

    def add(self, entry: Entry) -> None:
        """Apply an entry, which must be accepted."""
        self._sequence += 1
        applied = apply(self.state, Proposal(ProposalId("node-1", 1, self._sequence), entry))
        assert applied.result.ok, applied.result
        self.state = applied.state


def registered(count: int) -> Ledger:
    """A ledger with so many tasks, each with a schedule and a deadline."""
    ledger = Ledger()
    ledger.add(FoundCluster(NOW_US, "bench", (Seed("node-1", "127.0.0.1", 1, 2),)))
    ledger.add(TakeLead(NOW_US, "node-1", 1, RULES))
    for first in range(0, count, A_LIST):
        numbers = range(first, min(count, first + A_LIST))
        ledger.add(PutTasks(NOW_US, tuple(Put(_packed(f"task-{number:06}")) for number in numbers)))
    return ledger


def judged(state: State, now_us: int) -> Judged:
    """A new judge's first look at all tasks, at `now_us`."""
    judge = DeadlineJudge(state)
    entries: list[Breached] = []
    steps, all_s, longest_s = 0, 0.0, 0.0
    while True:
        begun_s = time.perf_counter()
        found, wake_us = judge.step(now_us)
        took_s = time.perf_counter() - begun_s
        entries += found
        steps, all_s, longest_s = steps + 1, all_s + took_s, max(longest_s, took_s)
        if wake_us is None or wake_us > now_us:
            return Judged(entries, steps, all_s, longest_s)


def _packed(name: str) -> bytes:
    fields = {
        "name": name,
        "kind": "command",
        "schedule": {"every_s": EVERY_S},
        "params": {"argv": ["true"]},
        "deadlines": {"start_within_s": WITHIN_S},
    }
    return Spec.model_validate(fields).pack()


def _say(what: str, one: Judged) -> None:
    print(f"  {what:42} {one.all_s:6.2f} s   {one.steps:,} steps, the longest {one.longest_s * 1000:.1f} ms")


if __name__ == "__main__":
    main()
