"""Events that a node has kept."""

from typing import Any, Literal

from typing_extensions import TypedDict

from node.http.responses.common import Cursor, Time


class EventView(TypedDict):
    """Something that happened, as `/v1/events` sends it: `data` is its subject. `at` is when this node noted it."""

    id: str
    at: Time
    event: Literal["member", "owner", "run", "deadline"]
    data: dict[str, Any]


class KeptEventsPage(TypedDict):
    """Events, the newest first. `since`: all since then are kept; null: none, since nobody follows the events."""

    since: Time | None
    items: list[EventView]
    next: Cursor
