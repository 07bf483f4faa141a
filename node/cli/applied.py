"""The changes that `rota apply` has made so far: prints each, and says which are left if the command ends midway."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from node.cli.beside_tasks import CalendarChange, GoneFromSet, PoolChange
from node.client import NO_PROBLEM, ApiProblem

UNKNOWN: Final = 504
"""The status of an answer that does not say whether the change is committed."""

NAMED_MAX: Final = 20
"""A sentence names at most this many tasks."""


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
        self.removed: list[GoneFromSet] = []
        self.still_used: dict[GoneFromSet, str] = {}
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
        """The changes made, for `--json`. `kept`: the tasks that were not deleted, since somebody has changed them.

        `still_used`: pools and calendars that the files no longer have and that were not `removed`, with the reason.
        """
        return {
            "pools": [change._asdict() for change in self.pools],
            "calendars": [change._asdict() for change in self.calendars],
            "items": self.puts,
            "deleted": self.deleted,
            "kept": self.kept,
            "removed": [{"kind": one.kind, "name": one.name} for one in self.removed],
            "still_used": [{"kind": one.kind, "name": one.name, "why": why} for one, why in self.still_used.items()],
            "next": None,
        }

    def tried(
        self,
        pools: Sequence[PoolChange],
        calendars: Sequence[CalendarChange],
        puts: Sequence[Mapping[str, Any]],
        doomed: Sequence[str],
        gone: Sequence[GoneFromSet],
    ) -> None:
        """Note the answers of a dry run, what would be changed beside tasks, and what would be deleted and removed."""
        self.pools += pools
        self.calendars += calendars
        self._print(f"{change} (would be)" for change in (*pools, *calendars))
        self._put(puts, "would be ")
        self.deleted += doomed
        self._print(f"{name}: would be deleted" for name in doomed)
        for one in gone:
            if one.why_kept is not None:
                self.keep_used(one, one.why_kept)
            else:
                self.removed.append(one)
                self._print([f"{one}: would be removed"])

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

    def remove(self, one: GoneFromSet) -> None:
        """Note that a pool or a calendar was removed."""
        self.removed.append(one)
        self._print([f"{one}: removed"])

    def keep_used(self, one: GoneFromSet, why: str) -> None:
        """Note that a pool or a calendar that the files no longer have is kept, and why."""
        self.still_used[one] = why
        self._print([f"{one}: kept, though the files no longer have it: {why}"])

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


def left_over(
    done: Done, puts: Sequence[str], doomed: Sequence[str], error: BaseException, gone: Sequence[GoneFromSet] = ()
) -> str:
    """Say which tasks are still to be put or deleted after `error`, what is to be removed, and what to do about them.

    >>> left_over(Done(None), ["a"], ["b"], ApiProblem(403, "", "Forbidden", ""))
    'nothing was changed'
    """
    # After a 504, or an error of a proxy, the outcome is unknown.
    refused = isinstance(error, ApiProblem) and error.status != UNKNOWN and error.type != NO_PROBLEM
    if refused and not (done.settled or done.pools or done.calendars or done.removed):
        return "nothing was changed"
    left = [name for name in puts if name not in done.settled]
    kept = [name for name in doomed if name not in done.settled]
    known, again = ("", "then give") if refused else (", as far as is known", "give")
    there = [str(one) for one in gone if one not in done.removed and one not in done.still_used]
    parts = (("applied", left), ("deleted", kept), ("removed", there))
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
