"""Members that lost their disks get the finished runs from one member each, by their bootstraps' succession
(docs/explanation/placement.md#a-member-that-joins-empty)."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from bench.sizing import history
from node.cli.local import wait_for
from node.client import path
from node.history import gaps
from node.history.database import EXPORT_RUNS_MAX, HistoryDatabase
from node.history.store import HISTORY
from node.peer.portions import Gap
from testkit.cluster import Cluster
from testkit.command import Rota
from testkit.compaction import compact

pytestmark = pytest.mark.chaos

NODES: Final = 5
RUNS: Final = 20_000
ENTRIES: Final = 200
"""The runs are spread over the indexes of so many entries."""

DEADLINE_S: Final = 90


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Five nodes with 20,000 finished runs each, and a log that begins after those."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    with Cluster(folder, NODES) as cluster:
        specs = [{"name": f"old-{number}", "kind": "probe"} for number in range(10)]
        history.write(folder / HISTORY, specs, cluster.names, RUNS, ENTRIES)
        for name in cluster.names:
            history.copy(folder / HISTORY, folder / name)
        cluster.start()
        cluster.wait_until_whole(DEADLINE_S)
        for number in range(ENTRIES + 10):
            days = 30 + number % 2
            assert cluster.ask("PATCH", "/v1/settings", json={"history_days": days}).status == 200
        compact(cluster, *cluster.names)
        yield cluster


@pytest.fixture
def cluster(made: Cluster) -> Iterator[Cluster]:
    """The same, with all nodes up."""
    made.mend()
    yield made
    for name in made.names:
        assert "Traceback" not in made.said(name), made.said(name)


def bootstrap(cluster: Cluster, member: str, node: str | None = None) -> Any:
    """The bootstrap of a member, as a node (or the member itself) tells it. None if it knows none yet."""
    items = cluster.client_of(node or member).get("/v1/bootstraps")["items"]
    return next((item["latest"] for item in items if item["member"] == member), None)


def wait_for_runs(cluster: Cluster, member: str, runs: int) -> Any:
    """A member's bootstrap, once it has fetched so many runs."""

    def there() -> Any:
        latest = bootstrap(cluster, member)
        return latest if latest is not None and latest["runs"] >= runs else None

    return wait_for(f"{member} has fetched {runs} runs", there, DEADLINE_S)


def wait_for_state(cluster: Cluster, member: str, state: str, node: str | None = None) -> Any:
    """A member's bootstrap, once it is in this state."""

    def there() -> Any:
        latest = bootstrap(cluster, member, node)
        return latest if latest is not None and latest["state"] == state else None

    return wait_for(f"the bootstrap of {member} is {state}", there, DEADLINE_S)


def wait_for_reasons(cluster: Cluster, member: str, reasons: list[str]) -> Any:
    """A member's bootstrap, once it waits for all of these reasons."""

    def there() -> Any:
        latest = bootstrap(cluster, member)
        waits = "" if latest is None else latest["waiting"] or ""
        return latest if all(reason in waits for reason in reasons) else None

    return wait_for(f"{member} waits because {reasons}", there, DEADLINE_S)


def feeders(cluster: Cluster, member: str) -> list[str]:
    """Who feeds a member, in order."""
    return list(cluster.get(path("v1", "tasks", f"bootstrap/{member}", "owner"))["preference"])


def lose_disks(cluster: Cluster, *members: str) -> None:
    """Kill members, and take their folders away."""
    for member in members:
        cluster.kill(member)
    for member in members:
        cluster.lose_folder(member)
        cluster.wait_for_status(member, "down")


def old_runs(cluster: Cluster, member: str) -> list[Any]:
    """The runs that were there from the beginning, as a member tells them."""
    # Not by `Cluster.all`: to check 20,000 runs against the description takes ten seconds.
    found = cluster.client_of(member).items("/v1/runs")
    return [run for run in found if run["task"].startswith("old-")]


def assert_all_there(cluster: Cluster, member: str, other: str) -> None:
    """A member has each run once, and as another one has it."""
    runs = old_runs(cluster, member)
    assert max(Counter(run["run_id"] for run in runs).values()) == 1
    assert len(runs) == RUNS
    assert runs == old_runs(cluster, other)


@pytest.mark.more
def test_the_next_in_succession_goes_on_when_the_feeder_is_killed(cluster: Cluster) -> None:
    member = "node-4"
    feeder, second, *rest = feeders(cluster, member)
    lose_disks(cluster, member)
    cluster.start(member)
    seen = wait_for_runs(cluster, member, 5 * EXPORT_RUNS_MAX)
    cluster.kill(feeder)
    assert (seen["state"], seen["feeder"], list(seen["fed"])) == ("fetching", feeder, [feeder])
    assert seen["runs"] < RUNS, "it was over before its feeder was killed"

    done = wait_for_state(cluster, member, "done")
    assert list(done["fed"]) == [feeder, second]
    assert sum(done["fed"].values()) == done["runs"]
    assert 0 < done["fed"][feeder] < RUNS
    cluster.wait_until_ready(member)
    assert_all_there(cluster, member, rest[0])
    assert done["runs"] == RUNS, "none was fetched twice"

    heard = wait_for_state(cluster, member, "done", rest[0])
    assert heard == done, "the others were told"
    begun, changed, over = (line for line in cluster.said(member).splitlines() if f"bootstrap/{member}: " in line)
    assert begun.endswith(f"from {feeder}"), begun
    assert f"{second} goes on after index" in changed, changed
    assert f"{done['fed'][feeder]:,} from {feeder}, {done['fed'][second]:,} from {second}" in over, over
    metrics = cluster.ask("GET", "/metrics", member).body.decode()
    assert f'rota_bootstrap_runs{{feeder="{second}"}} {done["fed"][second]}.0' in metrics
    fed = cluster.ask("GET", "/metrics", second).body.decode()
    assert f'rota_bootstrap_sent_runs_total{{member="{member}"}} {done["fed"][second]}.0' in fed


@pytest.mark.more
def test_two_members_at_once_have_feeders_of_their_own(cluster: Cluster) -> None:
    order = {member: feeders(cluster, member) for member in cluster.names}
    pair = next(
        (one, other)
        for one in cluster.names
        for other in cluster.names
        if one < other and len({order[one][0], order[other][0], one, other}) == 4
    )
    lose_disks(cluster, *pair)
    cluster.start(*pair)
    for member in pair:
        done = wait_for_state(cluster, member, "done")
        assert list(done["fed"]) == order[member][:1]
    cluster.wait_until_ready(*pair)
    for member in pair:
        assert_all_there(cluster, member, order[member][0])


@pytest.mark.more
def test_what_a_feeder_lacks_comes_from_another_one_as_soon_as_it_is_up(cluster: Cluster) -> None:
    """Those that are up lack the same; the last in succession, which has it, is down."""
    member, hole = "node-2", Gap(50, 100)
    first, *others, last = feeders(cluster, member)
    cluster.stop()
    for name in (first, *others):
        cut_out(cluster.folder / name / HISTORY, hole)
    cluster.lose_folder(member)
    cluster.start(*cluster.others(last))
    waiting = wait_for_reasons(cluster, member, [f"{name} has no more of them" for name in (first, *others)])
    assert next(iter(waiting["fed"])) == first
    missing = waiting["progress"]["total"] - waiting["progress"]["done"]
    assert missing == hole.through - hole.after
    cluster.wait_until_ready(member)
    assert 0 < len(old_runs(cluster, member)) < RUNS
    shown = Rota(cluster.url(member))("members").out
    assert "lacks finished runs" in shown, shown

    cluster.start(last)
    wait_for_state(cluster, member, "done")
    cluster.wait_until_whole(DEADLINE_S)
    assert_all_there(cluster, member, last)
    for name in (first, *others):
        wait_for_state(cluster, name, "done")
        assert_all_there(cluster, name, last)


def cut_out(file: Path, hole: Gap) -> None:
    """Have a history lack these runs, as if they had ended while its member was away."""
    database = HistoryDatabase(file)
    with database.lock:
        database.connection.execute("DELETE FROM ended WHERE entry > ? AND entry <= ?", hole)
        gaps.add(database.connection, [hole])
    database.close()


@pytest.mark.more
def test_a_member_whose_feeders_are_all_gone_says_so_and_goes_on_when_one_is_back(cluster: Cluster) -> None:
    member = "node-1"
    lose_disks(cluster, member)
    cluster.start(member)
    before = wait_for_runs(cluster, member, 2 * EXPORT_RUNS_MAX)
    others = cluster.others(member)
    cluster.kill_at_once(*others)
    waiting = wait_for_reasons(cluster, member, [f"{name} does not answer" for name in others])
    assert before["runs"] <= waiting["runs"] < RUNS
    told = cluster.client_of(member).get(path("v1", "tasks", f"bootstrap/{member}", "owner"))
    assert told["standing"][0]["detail"].startswith(f"{member} lacks finished runs, and waits: ")
    assert "asking again later" in cluster.said(member)

    cluster.mend()
    done = wait_for_state(cluster, member, "done")
    assert done["runs"] >= RUNS
    assert_all_there(cluster, member, others[0])


@pytest.mark.more
def test_a_member_that_is_killed_midway_goes_on_from_its_gap(cluster: Cluster) -> None:
    member = "node-5"
    feeder = feeders(cluster, member)[0]
    lose_disks(cluster, member)
    cluster.start(member)
    before = wait_for_runs(cluster, member, 5 * EXPORT_RUNS_MAX)
    cluster.kill(member)
    cluster.start(member)
    done = wait_for_state(cluster, member, "done")
    assert before["runs"] + done["runs"] < RUNS + 5 * EXPORT_RUNS_MAX, "it began anew"
    assert list(done["fed"]) == [feeder]
    cluster.wait_until_ready(member)
    assert_all_there(cluster, member, feeder)
    listed = Rota(cluster.url(member))("bootstraps", "--json").json["items"]
    assert next(item for item in listed if item["member"] == member)["owner"] == feeder
