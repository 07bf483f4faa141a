"""A page of the tasks that fit a search, by name. Goes over all tasks, and is therefore called in another thread."""

from collections.abc import Iterator
from dataclasses import dataclass

from node.duty.ownership import Ownership
from node.state.value import State
from node.web.board import Mark, Picture


@dataclass(frozen=True, slots=True)
class TaskSearch:
    """What a task must fit: all words of `words` in its name, the mark `show`, its kind and its owner; None: any."""

    words: tuple[str, ...] = ()
    show: Mark | None = None
    kind: str | None = None
    owner: str | None = None

    @property
    def fits_all(self) -> bool:
        """Whether every task fits."""
        return not self.words and self.show is None and self.kind is None and self.owner is None


def words_of(text: str) -> tuple[str, ...]:
    """The words of a search.

    >>> words_of("  Orders EU ")
    ('orders', 'eu')
    """
    return tuple(text.casefold().split())


def find(
    names: Iterator[str], state: State, ownership: Ownership, picture: Picture, search: TaskSearch, limit: int
) -> tuple[list[str], bool]:
    """The first `limit` of `names` that fit, and whether there are more."""
    found: list[str] = []
    for name in names:
        if search.words and not all(word in name.casefold() for word in search.words):
            continue
        if search.show is not None and not picture.has(name, search.show):
            continue
        row = state.tasks.get(name)
        if row is None or (search.kind is not None and row.placing.kind != search.kind):
            continue
        if search.owner is not None and ownership.owner(name) != search.owner:
            continue
        if len(found) == limit:
            return found, True
        found.append(name)
    return found, False
