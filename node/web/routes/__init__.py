"""The page's endpoints, one file per topic."""

from typing import Final

from node.http.endpoint import Endpoint
from node.web.routes import files, forms, live, overview, runs, sessions, task, task_edit, tasks, timeline

PAGES: Final[tuple[Endpoint, ...]] = tuple(
    endpoint
    for topic in (sessions, files, overview, tasks, task, task_edit, runs, timeline, forms, live)
    for endpoint in topic.endpoints.all
)
