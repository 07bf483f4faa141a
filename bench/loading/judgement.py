"""What is wrong with a phase of the measurement under load: with the cluster, or with the load."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

BLOCKED_MS: Final = 400.0
"""A loop that is blocked for 500 ms again and again is found at least this late."""


class Standing(NamedTuple):
    """What must not change: each member's incarnation, and each task's owner."""

    incarnations: dict[str, int]
    owners: dict[str, str]


@dataclass(frozen=True)
class Phase:
    """What was seen of a phase: the standing around it, what the nodes said of deaths, which runs lost an attempt.

    `starts`: how many attempts of short tasks began in it; `loop_ms`: how late any node's loop was at worst, and
    `loop_ms_least` how late one must have been for the load to have been there.
    """

    before: Standing
    after: Standing
    said: Sequence[str] = ()
    lost: Sequence[str] = ()
    starts: int = 0
    loop_ms: float = 0.0
    loop_ms_least: float = 0.0

    @property
    def down(self) -> list[str]:
        """The members that were marked down, or are gone."""
        now = self.after.incarnations
        return [name for name, number in self.before.incarnations.items() if now.get(name) != number]

    @property
    def moved(self) -> list[str]:
        """The tasks that have another owner, or none."""
        return [name for name, owner in self.before.owners.items() if self.after.owners.get(name) != owner]


def wrong(phase: Phase) -> list[str]:
    """What is wrong; nothing where load was there and changed nothing.

    >>> rest = Standing({"node-1": 1}, {"a": "node-1"})
    >>> wrong(Phase(rest, rest, starts=7)), wrong(Phase(rest, rest, starts=0))
    ([], ['no short task began: nothing is shown'])
    """
    found = [f"marked down: {name}" for name in phase.down]
    found += [f"moved: {name}" for name in phase.moved]
    found += [f"lost: {run_id}" for run_id in phase.lost]
    found += [f"said: {line}" for line in phase.said]
    if not phase.starts:
        found.append("no short task began: nothing is shown")
    if phase.loop_ms < phase.loop_ms_least:
        found.append(
            f"the worst loop was {phase.loop_ms:.0f} ms late, not {phase.loop_ms_least:.0f} ms: it was not blocked"
        )
    return found
