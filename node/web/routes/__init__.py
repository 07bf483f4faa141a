"""The page's endpoints, one file per topic."""

from typing import Final

from node.http.endpoint import Endpoint
from node.web.routes import files, forms, overview, runs, sessions, task, task_edit, tasks

PAGES: Final[tuple[Endpoint, ...]] = tuple(
    endpoint
    for topic in (sessions, files, overview, tasks, task, task_edit, runs, forms)
    for endpoint in topic.endpoints.all
)
