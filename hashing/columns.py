"""Tasks as columns: the values that placement needs, extracted once and kept from one placement to the next.

Most columns stay valid, because no task changes when a member dies, and only a few change when tasks are registered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

from hashing.chunked import list_in_chunks, set_in_chunks
from hashing.view import Task

Trait = tuple[str, tuple[tuple[str, str], ...]]
"""A task's kind and group: eligibility depends on these and on the members only."""


@dataclass(frozen=True)
class Columns:
    """Tasks in the order in which they were registered. Immutable; each column is computed on first use."""

    tasks: tuple[Task, ...]

    @classmethod
    def of(cls, tasks: "Sequence[Task] | Columns") -> "Columns":
        """Make the columns of `tasks`. Returns `tasks` itself if they are columns already."""
        return tasks if isinstance(tasks, Columns) else cls(tuple(tasks))

    def followed_by(self, tasks: Sequence[Task]) -> "Columns":
        """Make the columns of `tasks`. If `tasks` begins with these tasks, as after a registration, keep the values."""
        known = len(self.tasks)
        whole = Columns(tuple(tasks))
        if whole.tasks[:known] != self.tasks:
            return whole
        if len(whole.tasks) == known:
            return self
        more = Columns(whole.tasks[known:])
        pins = [*self.pins, *((known + position, pin) for position, pin in more.pins)]
        whole.__dict__.update(  # fill the cached properties
            keys=self.keys + more.keys,
            weights=self.weights + more.weights,
            weight=self.weight + more.weight,
            distinct_traits=self.distinct_traits | more.distinct_traits,
            pins=pins,
        )
        if self.incumbents is None and more.incumbents is None:
            whole.__dict__["incumbents"] = None
        return whole

    @cached_property
    def keys(self) -> list[int]:
        """The key64 of each task."""
        return list_in_chunks(map(itemgetter(1), self.tasks))

    @cached_property
    def weights(self) -> list[int]:
        """The weight of each task."""
        return list_in_chunks(map(itemgetter(6), self.tasks))

    @cached_property
    def weight(self) -> int:
        """The total weight of all tasks."""
        return sum(self.weights)

    @cached_property
    def traits(self) -> list[Trait]:
        """The kind and group of each task."""
        return list_in_chunks(map(itemgetter(2, 3), self.tasks))

    @cached_property
    def distinct_traits(self) -> frozenset[Trait]:
        """The distinct pairs of kind and group."""
        return frozenset(set_in_chunks(map(itemgetter(2, 3), self.tasks)))

    @cached_property
    def pins(self) -> list[tuple[int, str]]:
        """The positions of the tasks that have a pin, and their pins."""
        return [(position, pin) for position, pin in enumerate(map(itemgetter(4), self.tasks)) if pin is not None]

    @cached_property
    def incumbents(self) -> list[str | None] | None:
        """The incumbent of each task, or None if no task has one."""
        column: list[str | None] = list_in_chunks(map(itemgetter(5), self.tasks))
        return None if column.count(None) == len(column) else column
