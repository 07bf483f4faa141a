"""Shows how far the demo's ingest is, and waits for it."""

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from examples.demo.waiting import wait_while_it_advances
from node.cli.local import LocalCluster
from node.client import path
from node.execution.order import log_path


class RunProgress:
    """A progress bar for a run, shown within a `with` block."""

    def __init__(self, cluster: LocalCluster, run_id: str, console: Console) -> None:
        self._cluster = cluster
        self._run_id = run_id
        self._seen = "nothing"
        self._log = ""
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("files"))
        self._progress = Progress(*columns, console=console)
        self._bar = self._progress.add_task("claimed", total=12)

    def __enter__(self) -> "RunProgress":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def wait_for(self, what: str, condition: Callable[[dict[str, Any]], dict[str, Any] | None]) -> dict[str, Any]:
        """Read the run until `condition` returns it. Raises `NotInTime` once the run makes no progress."""
        return wait_while_it_advances(
            what, lambda: condition(self._read()), lambda: self._seen, lambda: self._log or "See the nodes' logs."
        )

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(f"  {text}")

    def _read(self) -> dict[str, Any]:
        run: dict[str, Any] = self._cluster.client.get(path("v1", "runs", self._run_id))
        files = (run["progress"] or run["checkpoint"] or {}).get("done") or (run["checkpoint"] or {}).get("files", 0)
        self._progress.update(self._bar, description=f"{run['state']} on {run['node'] or '-'}", completed=files)
        self._seen = f"attempt {run['attempt'] or '-'} is {run['state']} on {run['node'] or '-'}, {files} of 12 files"
        if run["node"]:
            log = log_path(self._cluster.folder / run["node"], self._run_id, run["attempt"])
            self._log = f"The log of attempt {run['attempt']} is {log}"
        return run
