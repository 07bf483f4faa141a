"""How long one entry takes that makes the runs of a task with `each`: `apply` alone, without nodes.

    python -m bench.fan_out [--members 100 1000] [--times 5]

What the members do meanwhile differs: nothing; what was due before has not begun, and is missed; it is at work, and
the occurrence is skipped; it was lost, and is replaced; the runs wait for a pool; and the task is deleted while they
wait. Each figure is processor time, the least of `--times`. Ten times the members should take about ten times as much.
"""

import sys
import time
from typing import Any, Final

from bench.beginning import options_of
from node.state.apply import apply
from node.state.attempts import Began
from node.state.claims import Claim
from node.state.entries import Entry, Proposal, ProposalId, Seed
from node.state.fan_out import FanOut
from node.state.members import FoundCluster, Join, MarkDown, TakeLead
from node.state.registry import DeleteTask, Put, PutTasks
from node.state.settings import ChangeSettings
from node.state.value import RULES, State
from tasks.definition.spec import Spec

NOW_US: Final = 1_800_000_000_000_000
MINUTE_US: Final = 60_000_000
TASK: Final = "clean"


class Trial:
    """A state, and the time that its last entry took."""

    def __init__(self, members: int, pools: dict[str, int] | None = None, **fields: Any) -> None:
        self.state, self.entries, self.took_s = State(), 0, 0.0
        self.names = [f"node-{number:05}" for number in range(members)]
        self.do(FoundCluster(NOW_US, "bench", tuple(Seed(name, "host", 7001, 8101) for name in self.names)))
        for name in self.names:
            self.do(Join(NOW_US, name, "host", 7001, 8101, 9001, labels=(), capacity=1, kinds=("command",), after=0))
        self.do(TakeLead(NOW_US, self.names[0], 1, RULES))
        if pools:
            self.do(ChangeSettings(NOW_US, {"pools": pools}))
        spec = {"name": TASK, "kind": "command", "schedule": {"every_s": 60}, "each": True, **fields}
        self.do(PutTasks(NOW_US, (Put(Spec.model_validate(spec).pack()),)))

    def do(self, entry: Entry) -> None:
        """Apply an entry. Raises `ValueError` if it is refused."""
        self.entries += 1
        began_s = time.thread_time()
        applied = apply(self.state, Proposal(ProposalId(self.names[0], 1, self.entries), entry))
        self.took_s = time.thread_time() - began_s
        if not applied.result.ok:
            raise ValueError(f"{type(entry).__name__} is refused: {applied.result.detail}")
        self.state = applied.state

    def fan_out(self, number: int) -> None:
        """Make the runs of an occurrence."""
        at_us = NOW_US + number * MINUTE_US
        self.do(FanOut(at_us, TASK, at_us))

    def begin(self) -> None:
        """Let each member begin its run."""
        for run_id in self.state.runs_of[TASK]:
            run = self.state.runs[run_id]
            member = self.state.members[run.member]
            self.do(Claim(run.created_at_us, TASK, run.fire_at_us, run.member, member.incarnation, run_id))
            self.do(Began(run.created_at_us, run_id, self.state.runs[run_id].token))

    def lose(self) -> None:
        """Mark all members down."""
        for name in self.names:
            self.do(MarkDown(NOW_US + MINUTE_US, name, self.state.members[name].incarnation, "silent", 1))


def first(members: int) -> float:
    """Nothing is active."""
    trial = Trial(members)
    trial.fan_out(1)
    return trial.took_s


def missed(members: int) -> float:
    """The runs before have not begun."""
    trial = Trial(members, deadlines={"finish_within_s": 3600})
    for number in (1, 2):
        trial.fan_out(number)
    return trial.took_s


def skipped(members: int) -> float:
    """The runs before are at work."""
    trial = Trial(members)
    trial.fan_out(1)
    trial.begin()
    trial.fan_out(2)
    return trial.took_s


def replaced(members: int) -> float:
    """The runs before were at work when their members were lost, and are replaced."""
    trial = Trial(members, overlap="replace")
    trial.fan_out(1)
    trial.begin()
    trial.lose()
    trial.fan_out(2)
    return trial.took_s


def queued(members: int) -> float:
    """The runs use a pool."""
    trial = Trial(members, {"disk": 2}, uses={"disk": 1})
    trial.fan_out(1)
    return trial.took_s


def deleted(members: int) -> float:
    """The task is deleted while its runs wait."""
    trial = Trial(members)
    trial.fan_out(1)
    trial.do(DeleteTask(NOW_US + 2 * MINUTE_US, TASK))
    return trial.took_s


CASES: Final = (first, missed, skipped, replaced, queued, deleted)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = options_of(__doc__)
    parser.add_argument("--members", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args(arguments)
    for case in CASES:
        took = [min(case(members) for _ in range(options.times)) for members in options.members]
        figures = (f"{members} members {s * 1000:.2f} ms" for members, s in zip(options.members, took, strict=True))
        print(f"{case.__name__:9} {', '.join(figures)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
