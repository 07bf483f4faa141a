"""The views of the page. Each has a file: its query, its routes, and the values for its templates."""

from typing import Final

from node.http.door.endpoint import Endpoint
from node.web.views import (
    backups,
    buttons,
    events,
    files,
    live,
    members,
    overview,
    run,
    sessions,
    set_graph,
    task,
    task_edit,
    task_graph,
    task_run,
    tasks,
    timeline,
    week,
)

_TOPICS: Final = (
    sessions,
    files,
    overview,
    tasks,
    task,
    task_edit,
    task_graph,
    set_graph,
    task_run,
    backups,
    run,
    timeline,
    week,
    members,
    events,
    buttons,
    live,
)

PAGES: Final[tuple[Endpoint, ...]] = tuple(endpoint for topic in _TOPICS for endpoint in topic.endpoints.all)
