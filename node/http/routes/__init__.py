"""The routes, one file per topic. The application serves, and /openapi.json describes, all of `ENDPOINTS`."""

from typing import Final

from node.http.endpoint import Endpoint
from node.http.routes import (
    bootstraps,
    channels,
    cluster,
    docs,
    health,
    kinds,
    logs,
    members,
    owner,
    peer,
    runs,
    saved,
    tasks,
    vitals,
    watch,
    what_if,
    why,
)

ENDPOINTS: Final[tuple[Endpoint, ...]] = tuple(
    endpoint
    for topic in (
        health,
        cluster,
        saved,
        members,
        vitals,
        kinds,
        tasks,
        owner,
        what_if,
        why,
        bootstraps,
        runs,
        channels,
        logs,
        watch,
        docs,
        peer,
    )
    for endpoint in topic.endpoints.all
)
