"""Lists of finished runs of which some could not be written to the file. Pure.

As in the file, the latest record of a series of skipped or missed occurrences replaces those before.
"""

from collections.abc import Iterable, Sequence

from node.state.value import EndedRun


def with_unwritten(
    written: Sequence[EndedRun],
    unwritten: Iterable[EndedRun],
    task: str | None,
    state: str | None,
    node: str | None,
    before: tuple[int, str] | None,
    limit: int,
) -> list[EndedRun]:
    """A list of finished runs, newest first: `written`, read with these filters, and the `unwritten` that pass them.

    `unwritten` is in the order in which it was recorded; the other arguments are those of `HistoryStore.runs`.
    """
    latest = {_identity(run): run for run in unwritten}
    wanted = [run for run in latest.values() if _passes(run, task, state, node, before)]
    merged = [*wanted, *(run for run in written if _identity(run) not in latest)]
    return sorted(merged, key=_identity, reverse=True)[:limit]


def _identity(ended: EndedRun) -> tuple[int, str]:
    """The creation time and id, by which lists are sorted."""
    return ended.run.created_at_us, ended.run.run_id


def _passes(
    ended: EndedRun, task: str | None, state: str | None, node: str | None, before: tuple[int, str] | None
) -> bool:
    attempts = ended.run.attempts
    return (
        (task is None or ended.run.task == task)
        and (state is None or ended.state == state)
        and (node is None or (bool(attempts) and attempts[-1].node == node))
        and (before is None or _identity(ended) < before)
    )
