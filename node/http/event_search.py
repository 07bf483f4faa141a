"""Events that fit a search, the newest first. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from node.http.event_hub import NumberedEvent
from node.http.events import ClusterEvent


@dataclass(frozen=True, slots=True)
class EventSearch:
    """What an event must fit: its sort (member, owner or run), a part of its task's name, a member that it names."""

    name: str | None = None
    task: str | None = None
    node: str | None = None

    def fits(self, event: ClusterEvent) -> bool:
        """Whether an event fits.

        >>> moved = ClusterEvent("owner", 7, {"task": "nightly", "from": "node-1", "to": "node-2"})
        >>> EventSearch(task="night").fits(moved), EventSearch(node="node-3").fits(moved)
        (True, False)
        """
        if self.name is not None and event.name != self.name:
            return False
        if self.task is not None and self.task.casefold() not in str(event.data.get("task", "")).casefold():
            return False
        return self.node is None or self.node in nodes_of(event)


def nodes_of(event: ClusterEvent) -> tuple[str | None, ...]:
    """The members that an event names."""
    data = event.data
    match event.name:
        case "member":
            return (data["id"],)
        case "owner":
            return (data["from"], data["to"])
        case _:
            return (data.get("node"),)


def newest_events(
    events: Iterable[NumberedEvent], search: EventSearch, before: int | None, limit: int
) -> tuple[list[NumberedEvent], bool]:
    """The newest `limit` of `events` (oldest first) that fit and are numbered less than `before`; and whether there are
    more.
    """
    found: list[NumberedEvent] = []
    for one in reversed(tuple(events)):
        if (before is None or one.number < before) and search.fits(one.event):
            if len(found) == limit:
                return found, True
            found.append(one)
    return found, False
