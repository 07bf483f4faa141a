"""How a list of finished runs is asked for, so that no filter goes through a million of them to find a few."""

from typing import Final

COMMON: Final = "succeeded"
"""How most runs end. The few others have an index of their own: looking for them among a million took ten seconds."""


def terms(task: str | None, state: str | None, node: str | None) -> list[str]:
    """The conditions, for SQLite to go by the index of what leaves the fewest: a `+` keeps it off another.

    >>> terms("a", "failed", None), terms(None, "failed", "b")
    (['task = :task', '+state = :state'], ['state = :state', "state <> 'succeeded'", '+node = :node'])
    """
    asked: list[str] = []
    if task is not None:
        asked.append("task = :task")
    if state not in (None, COMMON):
        # It takes the index of the uncommon ones only where it reads these very words.
        asked += ["+state = :state"] if asked else ["state = :state", f"state <> '{COMMON}'"]
    if node is not None:
        asked.append("+node = :node" if asked else "node = :node")
    if state == COMMON:
        asked.append("+state = :state")
    return asked
