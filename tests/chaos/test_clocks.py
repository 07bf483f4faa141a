"""A machine's wall clock is moved by an hour while its node runs: nothing is early, late or missed."""

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from node.cli.local import wait_for
from node.liveness.clocks import FRESH_S
from testkit.cluster import Cluster
from testkit.faults.node_clocks import Clocks, why_not

pytestmark = [pytest.mark.chaos, pytest.mark.more]

EVERY_S = 0.5


class ClockedCluster(Cluster):
    """Nodes whose clocks can be moved."""

    def __init__(self, folder: Path) -> None:
        self.clocks = Clocks(folder / "clocks")
        super().__init__(folder)

    def environment(self, name: str) -> Mapping[str, str]:  # type: ignore[override]
        return {**super().environment(name), **self.clocks.environment(name)}


@pytest.fixture(scope="module")
def clocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClockedCluster]:
    if (why := why_not()) is not None:
        pytest.skip(why)
    with ClockedCluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def cluster(clocked: ClockedCluster) -> Iterator[ClockedCluster]:
    clocked.mend()
    yield clocked
    clocked.check()


@pytest.mark.parametrize(
    ("which", "hours"),
    [("leader", 1), ("follower", -1), ("leader", -1), ("follower", 1)],
)
def test_a_clock_off_by_an_hour_changes_no_run(cluster: ClockedCluster, hours: int, which: str) -> None:
    leader = cluster.wait_for_leader()
    owner = leader if which == "leader" else cluster.others(leader)[0]
    name = f"clock-{which}-{hours}"
    cluster.register(name, pin=owner, schedule={"every_s": EVERY_S}, overlap="allow", catch_up="all")

    def run_by(at: datetime) -> list[datetime]:
        times = [run["fire_at"] for run in cluster.all(f"/v1/tasks/{name}/runs") if run["state"] == "succeeded"]
        return [time for time in map(datetime.fromisoformat, times) if time >= at]

    wait_for("it runs", lambda: run_by(datetime.min.replace(tzinfo=UTC)))
    cluster.clocks.move(owner, 3600.0 * hours)
    moved = datetime.now(UTC)
    wait_for("the node says so", lambda: f"3600.0 s {'ahead of' if hours > 0 else 'behind'}" in cluster.said(owner))
    wait_for("it runs on", lambda: len(run_by(moved)) >= 4)
    run_id = cluster.run(name, owner)
    assert cluster.wait_for_run(run_id)["state"] == "succeeded", (
        "a manual run requested at the node with the wrong clock"
    )
    by_the_wrong_clock = cluster.register(f"{name}-new", node=owner, schedule={"every_s": EVERY_S})
    assert abs(datetime.fromisoformat(by_the_wrong_clock["registered_at"]) - datetime.now(UTC)) < timedelta(minutes=10)
    cluster.clocks.move(owner, 0.0)
    back = datetime.now(UTC)
    wait_for("it runs on after that", lambda: len(run_by(back)) >= 4)
    assert max(run_by(moved)) < datetime.now(UTC) + timedelta(seconds=1)
    assert cluster.get(f"/v1/tasks/{name}")["missed"] == 0
    for made in (name, f"{name}-new"):
        assert cluster.ask("DELETE", f"/v1/tasks/{made}").status == 204


def test_no_occurrence_is_missed_with_one_clock_an_hour_behind_and_one_node_down(cluster: ClockedCluster) -> None:
    """Then only two of three clocks are heard, and they differ."""
    wrong, right, away = cluster.names
    tasks = {owner: f"clock-beside-{owner}" for owner in (wrong, right)}
    before = {name: len(cluster.said(name)) for name in cluster.names}
    cluster.clocks.move(wrong, -3600.0)
    wait_for("the node says so", lambda: "3600.0 s behind" in cluster.said(wrong)[before[wrong] :])
    for owner, name in tasks.items():
        cluster.register(name, node=right, pin=owner, schedule={"every_s": EVERY_S}, overlap="allow")
    cluster.kill(away)
    cluster.wait_for_status(away, "down", node=right)
    # Until the last clock reading of the node that is down has expired.
    time.sleep(FRESH_S + 1.0)
    alone = datetime.now(UTC)
    for name in tasks.values():

        def run_since(name: str = name) -> int:
            runs = cluster.get("/v1/runs", right, task=name, limit=50)["items"]
            return sum(datetime.fromisoformat(run["fire_at"]) >= alone for run in runs if run["state"] == "succeeded")

        wait_for("it runs on", lambda: run_since() >= 4)
    assert "ahead of" not in cluster.said(right)[before[right] :], "the correct clock is reported as wrong"
    cluster.restart(away)
    cluster.wait_until_whole()
    for name in tasks.values():
        assert cluster.get(f"/v1/tasks/{name}", right)["missed"] == 0
        assert cluster.ask("DELETE", f"/v1/tasks/{name}").status == 204
    cluster.clocks.move(wrong, 0.0)
