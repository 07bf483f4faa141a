"""Whether the leader pings the outside watcher, or withholds the ping. Pure."""

from collections.abc import Sequence
from typing import Final

from node.state.value import State

_SHOWN: Final = 3


def withheld(state: State, *, quorum: bool, overdue: Sequence[str]) -> str | None:
    """Why the leader does not ping now; None: all is well. `overdue` are the tasks that are late.

    >>> withheld(State(), quorum=True, overdue=["nightly", "orders"])
    'nightly and orders are overdue'
    """
    if not quorum:
        return "there is no quorum"
    if overdue:
        return f"{_named(overdue)} {'is' if len(overdue) == 1 else 'are'} overdue"
    impaired = [member for _, member in sorted(state.members.items()) if member.aside]
    return f"{impaired[0].id}: {impaired[0].aside}" if impaired else None


def late_tasks(state: State) -> frozenset[str]:
    """The tasks with a deadline that is breached. It visits all tasks: not to be called on the event loop."""
    return frozenset(name for name, row in state.tasks.items() if row.breaches)


def _named(names: Sequence[str]) -> str:
    shown = list(names[:_SHOWN])
    if len(names) > _SHOWN:
        return f"{', '.join(shown)} and {len(names) - _SHOWN} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]
