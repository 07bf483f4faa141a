"""The page's endpoints, one file per topic."""

from typing import Final

from node.http.endpoint import Endpoint
from node.web.routes import events, files, forms, live, members, overview, sessions, tasks, timeline

PAGES: Final[tuple[Endpoint, ...]] = tuple(
    endpoint
    for topic in (sessions, files, overview, tasks, timeline, members, events, forms, live)
    for endpoint in topic.endpoints.all
)
