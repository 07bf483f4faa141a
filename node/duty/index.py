"""Indexes of the few runs that every step needs."""

from collections.abc import Iterable

from node.state.value import Run, State
from tasks.definition.run import HELD


class RunIndex:
    """Active runs by the use that a step has for them; each set holds run ids."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._ids: dict[str, tuple[str, ...]] = {}
        self.mine: set[str] = set()
        """Held by this member."""
        self.orphaned: set[str] = set()
        self.continuous: set[str] = set()
        """Of continuous tasks, held or waiting."""

    def feed(self, state: State, tasks: Iterable[str]) -> None:
        """Update the runs of `tasks`, which have changed."""
        for task in tasks:
            for run_id in self._ids.pop(task, ()):
                self._forget(run_id)
            ids = state.runs_of.get(task, ())
            if ids:
                self._ids[task] = ids
                for run_id in ids:
                    self._note(state.runs[run_id])

    def _forget(self, run_id: str) -> None:
        self.mine.discard(run_id)
        self.orphaned.discard(run_id)
        self.continuous.discard(run_id)

    def _note(self, run: Run) -> None:
        if run.state in HELD and run.node == self._me:
            self.mine.add(run.run_id)
        if run.state == "orphaned":
            self.orphaned.add(run.run_id)
        elif run.spec.continuous and not run.action:
            self.continuous.add(run.run_id)
