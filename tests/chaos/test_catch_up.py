"""Under `catch_up: all` each occurrence that fell due while nothing could run is run, one after the other."""

import time
from datetime import datetime

import pytest

from node.cli.local import wait_for
from tasks.definition.policy import LATENESS_S
from testkit.cluster import Cluster

pytestmark = [pytest.mark.chaos, pytest.mark.more]

EVERY_S = 2.0


def due_s(run: dict[str, str]) -> float:
    return datetime.fromisoformat(run["fire_at"]).timestamp()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_what_fell_due_without_a_quorum_is_run_behind_the_run_that_was_active(cluster: Cluster, how: str) -> None:
    """With `overlap: skip`, the default, all of it was skipped: the run that was active then still is."""
    task, notes = f"all-{how}", cluster.notes()
    cluster.register(task, params=notes.params, schedule={"every_s": EVERY_S}, catch_up="all")
    notes.wait("beat")
    owner = cluster.owner_of(task)
    survivor = cluster.others(owner)[0]
    for lost in cluster.others(survivor):
        (cluster.kill if how == "kill" else cluster.stop)(lost)
    down_s = time.time()
    wait_for("what falls due is late", lambda: time.time() - down_s > LATENESS_S + 2 * EVERY_S, deadline_s=60)
    up_s = time.time()
    cluster.mend()
    notes.let_go()

    def caught_up() -> bool:
        runs = cluster.all("/v1/runs", task=task)
        return any(due_s(run) > up_s and run["state"] == "succeeded" for run in runs)

    wait_for("what was missed has run", caught_up, deadline_s=90)
    cluster.ask("POST", f"/v1/tasks/{task}/pause", json={})
    found = {
        due_s(run): run
        for run in cluster.all("/v1/runs", task=task)
        if down_s + 1 < due_s(run) < up_s and run["attempt"]
    }
    skipped = [
        run
        for run in cluster.all("/v1/runs", task=task)
        if run["state"] in ("skipped", "missed")
        and due_s(run) < up_s
        and run["last_fire_at"] > run["fire_at"]
        and datetime.fromisoformat(run["last_fire_at"]).timestamp() > down_s + 1
    ]
    assert not skipped
    assert len(found) >= (up_s - down_s - 1) / EVERY_S - 1
    assert {run["state"] for run in found.values()} == {"succeeded"}
    begun = [datetime.fromisoformat(found[at]["started_at"]) for at in sorted(found)]
    ended = [datetime.fromisoformat(found[at]["finished_at"]) for at in sorted(found)]
    assert all(after >= before for before, after in zip(ended, begun[1:], strict=False)), "one after the other"
