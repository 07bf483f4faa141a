"""Finds a page of the tasks that match a search, sorted. It visits all tasks, so callers use another thread."""

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from node.duty.conditions import Mark
from node.duty.ownership import Ownership
from node.state.value import State, TaskRow
from node.web.board import Picture

TaskSort = Literal["name", "state", "last", "next", "owner", "kind"]
"""How tasks are sorted: by name; by their most important mark; by their last run, the latest first; by when they are
due, the soonest first; by owner; by kind. Ties are sorted by name."""

LABELS_MAX: Final = 100
"""At most this many labels are offered as filters: the most frequent ones."""

_NEVER: Final = 2**63
"""The sort key of tasks that have no such time: they come last."""

SortKey = tuple[int | str, str]
"""A task's sort value, and its name."""


@dataclass(frozen=True, slots=True)
class TaskSearch:
    """The conditions that a task must match to be listed; None: no condition."""

    #: Lower-case words that must all be in its name.
    words: tuple[str, ...] = ()
    #: A mark that it must have.
    show: Mark | None = None
    #: Its kind.
    kind: str | None = None
    #: Its owner.
    owner: str | None = None
    #: The set of files in which it is kept.
    set: str | None = None
    #: A label that it must have, as NAME=VALUE.
    label: str | None = None

    @property
    def fits_all(self) -> bool:
        """Whether every task matches."""
        return self == TaskSearch()

    def fits(self, name: str, row: TaskRow, ownership: Ownership, picture: Picture) -> bool:
        """Return whether a task matches."""
        return (
            all(word in name.casefold() for word in self.words)
            and (self.show is None or picture.has(name, self.show))
            and (self.kind is None or row.placing.kind == self.kind)
            and (self.set is None or picture.sets.get(name) == self.set)
            and (self.label is None or self.label in picture.labels.get(name, ()))
            and (self.owner is None or ownership.owner(name) == self.owner)
        )


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a search.

    >>> words_of("  Orders EU ")
    ('orders', 'eu')
    """
    return tuple(text.casefold().split())


def find(
    names: Iterator[str], state: State, ownership: Ownership, picture: Picture, search: TaskSearch, limit: int
) -> tuple[list[str], bool]:
    """Return the first `limit` of `names` that match the search, and whether there are more."""
    found: list[str] = []
    for name in _fitting(names, state, ownership, picture, search):
        if len(found) == limit:
            return found, True
        found.append(name)
    return found, False


def find_sorted(
    state: State,
    ownership: Ownership,
    picture: Picture,
    search: TaskSearch,
    sort: TaskSort,
    after: SortKey | None,
    limit: int,
) -> tuple[list[SortKey], bool]:
    """Return the first `limit` matching tasks in the order `sort`, from behind `after`; and whether there are more."""
    keys = (
        (_place(sort, name, state.tasks[name], ownership, picture), name)
        for name in _fitting(iter(state.tasks), state, ownership, picture, search)
    )
    found: list[SortKey] = heapq.nsmallest(limit + 1, keys if after is None else (key for key in keys if key > after))
    return found[:limit], len(found) > limit


def labels_offered(picture: Picture, chosen: str | None) -> list[str]:
    """Return the labels to offer as filters, sorted by name; `chosen` is always among them."""
    counts = Counter(label for labels in picture.labels.values() for label in labels)
    most = {label for label, _ in counts.most_common(LABELS_MAX)}
    return sorted(most if chosen is None else most | {chosen})


def _fitting(
    names: Iterator[str], state: State, ownership: Ownership, picture: Picture, search: TaskSearch
) -> Iterator[str]:
    for name in names:
        row = state.tasks.get(name)
        if row is not None and search.fits(name, row, ownership, picture):
            yield name


def _place(sort: TaskSort, name: str, row: TaskRow, ownership: Ownership, picture: Picture) -> int | str:
    match sort:
        case "state":
            return picture.rank(name)
        case "last":
            return _NEVER if row.last is None else -row.last.finished_at_us
        case "next":
            return picture.due.get(name, _NEVER)
        case "owner":
            return ownership.owner(name) or ""
        case "kind":
            return row.placing.kind
        case "name":
            return ""
