"""Whether a schedule has been kept: each occurrence once, none left out."""

from collections import Counter
from datetime import datetime

from node.client import path
from tests.cluster import Cluster


def assert_each_occurrence_once(cluster: Cluster, task: str, every_s: float) -> None:
    """Of a task that is due every so many seconds, with `overlap: allow` and `catch_up: all`.

    From the first occurrence that is known to the last; none was passed over, and no attempt was lost with its node.
    """
    runs = cluster.all(path("v1", "tasks", task, "runs"))
    due = Counter(round(datetime.fromisoformat(run["fire_at"]).timestamp() / every_s, 3) for run in runs)
    assert len(due) >= 3, f"{task} was hardly ever due"
    assert max(due.values()) == 1, f"{task} had an occurrence twice"
    first = min(due)
    lost = [number for number in range(round(max(due) - first) + 1) if round(first + number, 3) not in due]
    assert not lost, f"{task} has lost {len(lost)} of {len(due) + len(lost)} occurrences"
    assert not [run for run in runs if run["state"] in ("missed", "skipped")]
