"""The changes that `rota apply` has made so far: prints each, and says which are left if the command ends midway."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from node.client import NO_PROBLEM, ApiProblem

UNKNOWN: Final = 504
"""The status of an answer that does not say whether the change is committed."""

NAMED_MAX: Final = 20
"""A sentence names at most this many tasks."""


class PoolChange(NamedTuple):
    """A change of a pool: how much there was of it (None: there was none), and how much there is then.

    >>> str(PoolChange("dumps", None, 2)), str(PoolChange("dumps", 1, 2))
    ('pool dumps: 2', 'pool dumps: 1 -> 2')
    """

    name: str
    before: int | None
    after: int

    def __str__(self) -> str:
        """Return it as a line for people."""
        return f"pool {self.name}: {'' if self.before is None else f'{self.before} -> '}{self.after}"


class CalendarChange(NamedTuple):
    """A change of a calendar: its days before (None: it was not there), and then.

    >>> str(CalendarChange("closing", None, ("2026-12-24",)))
    'calendar closing: 1 day'
    >>> str(CalendarChange("closing", ("2026-12-24",), ("2026-12-27", "2026-12-28")))
    'calendar closing: 2 more days, 1 fewer'
    """

    name: str
    before: tuple[str, ...] | None
    after: tuple[str, ...]

    def __str__(self) -> str:
        """Return it as a line for people."""
        if self.before is None:
            return f"calendar {self.name}: {len(self.after)} {'day' if len(self.after) == 1 else 'days'}"
        before, after = set(self.before), set(self.after)
        more, fewer = len(after - before), len(before - after)
        return f"calendar {self.name}: {more} more {'day' if more == 1 else 'days'}, {fewer} fewer"


class Done:
    """The changes that were made. `say` prints a line for each; None: no lines are printed, only `answer`.

    `unprinted` is the error that kept lines from being printed, or None.
    """

    def __init__(self, say: Callable[[str], None] | None) -> None:
        self._say = say
        self.pools: list[PoolChange] = []
        self.calendars: list[CalendarChange] = []
        self.puts: list[Mapping[str, Any]] = []
        self.deleted: list[str] = []
        self.kept: list[str] = []
        self.unprinted: OSError | None = None
        self._gone: list[str] = []

    @property
    def settled(self) -> Collection[str]:
        """The tasks that need no further change."""
        return {str(put["name"]) for put in self.puts} | {*self.deleted, *self.kept, *self._gone}

    @property
    def changed(self) -> bool:
        """Whether any task was changed or deleted."""
        return bool(self.deleted) or any(put["change"] != "unchanged" for put in self.puts)

    @property
    def answer(self) -> dict[str, Any]:
        """The changes made, for `--json`. `kept`: the tasks that were not deleted, since somebody has changed them."""
        return {
            "pools": [change._asdict() for change in self.pools],
            "calendars": [change._asdict() for change in self.calendars],
            "items": self.puts,
            "deleted": self.deleted,
            "kept": self.kept,
            "next": None,
        }

    def tried(
        self,
        pools: Sequence[PoolChange],
        calendars: Sequence[CalendarChange],
        puts: Sequence[Mapping[str, Any]],
        doomed: Sequence[str],
    ) -> None:
        """Note the answers of a dry run, what would be changed beside tasks, and the tasks that would be deleted."""
        self.pools += pools
        self.calendars += calendars
        self._print(f"{change} (would be)" for change in (*pools, *calendars))
        self._put(puts, "would be ")
        self.deleted += doomed
        self._print(f"{name}: would be deleted" for name in doomed)

    def set_pools(self, changes: Sequence[PoolChange]) -> None:
        """Note that pools were made or changed."""
        self.pools += changes
        self._print(map(str, changes))

    def set_calendar(self, change: CalendarChange) -> None:
        """Note that a calendar was made or changed."""
        self.calendars.append(change)
        self._print([str(change)])

    def put(self, puts: Sequence[Mapping[str, Any]]) -> None:
        """Note that tasks were put, with these answers."""
        self._put(puts, "")

    def delete(self, name: str) -> None:
        """Note that a task was deleted."""
        self.deleted.append(name)
        self._print([f"{name}: deleted, and its runs are cancelled"])

    def gone(self, name: str) -> None:
        """Note that a task to delete did not exist any more."""
        self._gone.append(name)
        self._print([f"{name}: was deleted by somebody else meanwhile"])

    def keep(self, name: str) -> None:
        """Note that a task was not deleted, because somebody changed it after it was compared with the files."""
        self.kept.append(name)
        self._print([f"{name}: not deleted: somebody has changed it meanwhile"])

    def _put(self, puts: Sequence[Mapping[str, Any]], would_be: str) -> None:
        self.puts += puts
        self._print(line for put in puts for line in _lines(put, would_be))

    def _print(self, lines: Iterable[str]) -> None:
        text = "\n".join(lines)
        if self._say is not None and text:
            try:
                self._say(text)
            except OSError as error:  # such as a closed pipe or a full disk: go on with the changes
                self._say, self.unprinted = None, error


def _lines(put: Mapping[str, Any], would_be: str) -> Iterator[str]:
    yield f"{put['name']}: {would_be}{put['change']} (version {put['version']})"
    yield from field_lines(put)
    for warning in put["warnings"]:
        yield f"  warning: {warning}"


def field_lines(put: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields in which a task differs, a line each."""
    for change in put["changes"]:
        yield f"  {change['field']}: {json.dumps(change['before'])} -> {json.dumps(change['after'])}"


def left_over(done: Done, puts: Sequence[str], doomed: Sequence[str], error: BaseException) -> str:
    """Say which tasks are still to be put or deleted after `error`, and what to do about them.

    >>> left_over(Done(None), ["a"], ["b"], ApiProblem(403, "", "Forbidden", ""))
    'nothing was changed'
    """
    # After a 504, or an error of a proxy, the outcome is unknown.
    refused = isinstance(error, ApiProblem) and error.status != UNKNOWN and error.type != NO_PROBLEM
    if refused and not done.settled and not done.pools and not done.calendars:
        return "nothing was changed"
    left = [name for name in puts if name not in done.settled]
    kept = [name for name in doomed if name not in done.settled]
    known, again = ("", "then give") if refused else (", as far as is known", "give")
    parts = (("applied", left), ("deleted", kept))
    said = "; ".join(f"not {what}{known}: {_named(names)}" for what, names in parts if names)
    return (
        f"ended midway, with {len(puts) - len(left)} of {len(puts)} tasks applied and {len(doomed) - len(kept)} of "
        f"{len(doomed)} deleted"
        + (f"; {said}" if said else "")
        + f". `rota diff` with the same options shows what is left; {again} the same command again"
    )


def kept_text(kept: Sequence[str]) -> str:
    """Say what to do about tasks that were not deleted because somebody changed them meanwhile."""
    return (
        f"not deleted, because somebody has changed them meanwhile: {_named(kept)}. All else is done. See what they "
        "are now (rota show NAME): either put them into the files, or give the same command again to delete them"
    )


def mixed_text(names: Sequence[str]) -> str:
    """Say what to do about tasks that differ from the files although all changes were made."""
    return (
        f"all was done, but somebody else has changed tasks of the set meanwhile: {_named(names)}. `rota diff` "
        "with the same options shows how they differ from these files; one pipeline at a time should apply a set"
    )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
