"""Whether a schedule has been kept: each occurrence once, none left out."""

from collections.abc import Sequence

from testkit import each_once
from testkit.cluster import Cluster


def assert_each_occurrence_once(cluster: Cluster, tasks: Sequence[str]) -> None:
    """Of tasks that are due every so many seconds, with `overlap: allow` and `catch_up: all`; they are paused here.

    From the registration to the pause: each has succeeded, once.
    """
    for task, kept in each_once.pause(cluster.client, tasks).items():
        assert not kept.wrong, kept.wrong
        assert len(kept.runs) >= 3, f"{task} was hardly ever due"
