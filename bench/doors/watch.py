"""What a span of time was like for everybody else: a client with a token, the tasks, the logs, the node's memory."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from bench.doors.judgement import Span
from bench.idle import cost_of
from node.cli.local import LocalCluster, wait_for

PAUSE_S: Final = 0.02
"""Between two requests of the client."""

PATIENCE_S: Final = 10.0
"""A request that is not answered by then has failed."""


class Watch:
    """Watches a cluster whose tasks are due `per_s` times a second; `attacked` is the node that the client asks."""

    def __init__(self, cluster: LocalCluster, attacked: str, per_s: float) -> None:
        self._cluster, self._attacked, self._per_s = cluster, attacked, per_s

    def until(self, over: Callable[[], bool]) -> Span:
        """Watch until it is over: each request has a connection of its own, as those of `rota` and curl have."""
        answers_ms: list[float] = []
        failures: list[str] = []
        passed_over, log_bytes, begun = self.passed_over(), self._log_bytes(), time.monotonic()
        memory_mib = 0.0
        look_at = begun
        while not over():
            asked = time.monotonic()
            if asked >= look_at:
                memory_mib = max(memory_mib, cost_of(self._cluster.pid(self._attacked)).rss_mib)
                look_at = asked + 1.0
                asked = time.monotonic()
            try:
                self._ask()
            except (OSError, HTTPException) as error:
                failures.append(repr(error))
            else:
                answers_ms.append(1000 * (time.monotonic() - asked))
            time.sleep(PAUSE_S)
        due = self._per_s * (time.monotonic() - begun)
        passed_over = self.passed_over() - passed_over
        return Span(answers_ms, failures, due, passed_over, self._log_bytes() - log_bytes, memory_mib)

    def _ask(self) -> None:
        with closing(HTTPConnection(urlsplit(self._cluster.url(self._attacked)).netloc, timeout=PATIENCE_S)) as client:
            client.request("GET", "/v1/tasks/short-0/owner", headers={"Authorization": f"Bearer {self._cluster.token}"})
            response = client.getresponse()
            response.read()
            if response.status != 200:
                raise HTTPException(f"{response.status} {response.reason}")

    def passed_over(self) -> int:
        """How many occurrences have been skipped or missed so far, of all tasks."""

        def told() -> tuple[int]:
            tasks = self._cluster.client.items("/v1/tasks")
            return (sum(task["skipped"] + task["missed"] for task in tasks),)

        return wait_for("the tasks are told", told)[0]

    def _log_bytes(self) -> int:
        return sum(self._cluster.log_file(name).stat().st_size for name in self._cluster.names)


def history_bytes(folder: Path) -> int:
    """How many bytes of the finished runs' file in a node's data folder are in use, with what is in its journal."""
    with closing(sqlite3.connect(f"file:{folder / 'history.db'}?mode=ro", uri=True)) as file:
        pages, free, page_bytes = (
            file.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * page_bytes)
