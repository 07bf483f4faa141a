"""The page's endpoints, one file per topic."""

from typing import Final

from node.http.door.endpoint import Endpoint
from node.web.routes import (
    events,
    files,
    forms,
    live,
    members,
    overview,
    runs,
    sessions,
    task,
    task_edit,
    task_run,
    tasks,
    timeline,
)

_TOPICS: Final = (
    sessions,
    files,
    overview,
    tasks,
    task,
    task_edit,
    task_run,
    runs,
    timeline,
    members,
    events,
    forms,
    live,
)

PAGES: Final[tuple[Endpoint, ...]] = tuple(endpoint for topic in _TOPICS for endpoint in topic.endpoints.all)
