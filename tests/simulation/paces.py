"""Starts at a rate: never nearer to one another than allowed, by the order of the entries and their time stamps.

Worked out anew from the claims and the definitions of their runs. A claim counts if its stamp is about right: a clock
that is wrong by more has members' starts ignored, and an entry that was under way for long may come too late to count.
"""

from collections import Counter

from node.state.apply import Applied
from node.state.claims import Claim
from node.state.entries import Proposal
from node.state.settings import ChangeSettings
from node.state.value import State
from tests.simulation.world import World

AHEAD_US, BEHIND_US = 2_000_000, 4_000_000


class Paces:
    """Watches every accepted entry of a history with rates."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._allowed: dict[str, tuple[int, str]] = {}
        """For each pool from when on the next start is allowed, and the run after which it is."""
        self.counts: Counter[str] = Counter()

    def watch(self, before: State, proposal: Proposal, applied: Applied) -> None:
        """An entry was applied."""
        entry, after = proposal.entry, applied.state
        if not applied.result.ok:
            return
        if isinstance(entry, ChangeSettings):
            self._removed(before, after)
        if not isinstance(entry, Claim) or (run := after.runs.get(applied.result.value["run_id"])) is None:
            return
        if (rate := run.spec.rate) is None or run.action or rate.pool not in after.pools:
            return
        if not -BEHIND_US <= entry.at_us - self._world.true_us <= AHEAD_US:
            self.counts["starts by a wrong clock"] += 1
            return
        at_us, first = self._allowed.get(rate.pool, (0, ""))
        if entry.at_us < at_us:
            early_s = (at_us - entry.at_us) / 1e6
            self._world.wrong(f"{run.run_id} starts {early_s} s too early after {first}, in the pool {rate.pool}")
        self._allowed[rate.pool] = entry.at_us + 60_000_000 // rate.per_min, run.run_id
        self.counts["starts at a rate"] += 1
        self.counts["starts just in time"] += 0 < entry.at_us - at_us < 20_000

    def _removed(self, before: State, after: State) -> None:
        """A pool that is gone was needed by no task, and waited for by none."""
        for name in set(before.pools) - set(after.pools):
            self._allowed.pop(name, None)
            needing = [row.placing.name for row in after.tasks.values() if (of := row.spec.rate) and of.pool == name]
            if needing:
                self._world.wrong(f"the pool {name} is removed, in which {needing} start")
