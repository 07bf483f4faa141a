"""Every node is stopped gracefully and restarted, one by one: no occurrence is lost or run twice."""

import pytest

from testkit.cluster import Cluster
from testkit.each_once import assert_each_occurrence_once

pytestmark = pytest.mark.chaos

OFTEN = ("often-0", "often-1", "often-2")
EVERY_S = 0.5


@pytest.mark.more
def test_a_rolling_restart_loses_no_occurrence(cluster: Cluster) -> None:
    for name in OFTEN:
        cluster.register(name, schedule={"every_s": EVERY_S}, overlap="allow", catch_up="all")
    held = {name: cluster.notes() for name in cluster.names}
    for name, notes in held.items():
        cluster.register(f"held-by-{name}", params={**notes.params, "steps": 2}, pin=name)
    runs = {name: cluster.run(f"held-by-{name}") for name in cluster.names}
    for notes in held.values():
        notes.wait("beat")
    for name in cluster.names:
        before = cluster.run_of(runs[name])["attempt"]
        cluster.stop(name)
        assert cluster.exit_code(name) == 0
        survivor = cluster.others(name)[0]
        run = cluster.wait_for_attempt(runs[name], before + 1, survivor)
        assert run["attempts"][before - 1]["state"] != "orphaned", "the run was lost instead of handed over"
        assert cluster.member(name, survivor)["reason"] == "stopped"
        cluster.restart(name)
        assert cluster.member(name)["status"] == "up", "the node must drain for the stop only"
    for name, notes in held.items():
        notes.let_go()
        assert cluster.wait_for_run(runs[name])["state"] == "succeeded"
        assert [note["step"] for note in notes.read("step")] == [0, 1], "the run did not resume from its checkpoint"
    assert_each_occurrence_once(cluster, OFTEN)
