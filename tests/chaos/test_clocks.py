"""A machine's wall clock is moved by an hour while its node runs: nothing is early, late or missed."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bench.chaos.clocks import Clocks, why_not
from node.cli.local import wait_for
from tests.cluster import Cluster

pytestmark = pytest.mark.chaos

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


@pytest.mark.parametrize("hours", [1, -1])
@pytest.mark.parametrize("which", ["leader", "follower"])
def test_a_clock_that_is_an_hour_off_changes_nothing(cluster: ClockedCluster, hours: int, which: str) -> None:
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
    assert cluster.wait_for_run(run_id)["state"] == "succeeded", "a run by hand that the wrong clock was asked for"
    by_the_wrong_clock = cluster.register(f"{name}-new", node=owner, schedule={"every_s": EVERY_S})
    assert abs(datetime.fromisoformat(by_the_wrong_clock["registered_at"]) - datetime.now(UTC)) < timedelta(minutes=10)
    cluster.clocks.move(owner, 0.0)
    back = datetime.now(UTC)
    wait_for("it runs on after that", lambda: len(run_by(back)) >= 4)
    assert max(run_by(moved)) < datetime.now(UTC) + timedelta(seconds=1)
    assert cluster.get(f"/v1/tasks/{name}")["missed"] == 0
    for made in (name, f"{name}-new"):
        assert cluster.ask("DELETE", f"/v1/tasks/{made}").status == 204
