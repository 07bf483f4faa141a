"""The node of a driver is killed, or stands still beyond its lease and wakes: each sink ends as without a fault.

Three real nodes; one run of them writes to several sinks, so that a fault meets each of them at another step.
"""

import os
import random
import shlex
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("moto.server", reason="moto[server] is not installed")
pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")

import pyspark

from node.cli.local import wait_for
from node.execution import process_tree
from spark_tasks.spark.class_cache import cache_file, using
from spark_tasks.spark.java import find_java
from spark_tasks.spark.session import JVM_OPTIONS
from tasks.definition.run import FINAL
from testkit.cluster import Cluster
from testkit.execution.one_attempt import step_after
from testkit.servers.object_store import ObjectStore, object_store
from testkit.servers.webhook_receiver import SECRET, webhook_receiver
from testkit.spark.databases import PASSWORD, EtlDatabase
from testkit.spark.etl_sinks import TASK
from testkit.spark.many_sinks import notes
from tests.integration.spark.fault_targets import GROUPS, FaultTarget, Source, targets

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.soak]

SEED: Final = 14
BATCHES: Final = 4
"""How many batches a run brings."""

ENDS_S: Final = 900.0
"""How long a run may take: half a minute; some minutes on a machine with much else to do."""


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


@pytest.fixture
def cluster(tmp_path: Path, store: ObjectStore) -> Iterator[Cluster]:
    (tmp_path / "cluster").mkdir()
    # Most of an attempt's time is the start of its JVM, and most of that is compiling what is soon killed.
    java = find_java(os.environ)
    cached = using(java, cache_file(java, pyspark.__version__))
    quick = {JVM_OPTIONS: shlex.join([*cached, "-XX:TieredStopAtLevel=1"])}
    env = {"ROTA_SPARK_MASTER": "local[2]", "ROTA_SPARK_MEMORY": "1g", **quick}
    with Cluster(tmp_path / "cluster", env=env) as made:
        for name, value in {**store.secrets, "pg": PASSWORD, "signs": SECRET}.items():
            (made.secrets_dir / name).write_text(value)
        made.start()
        made.wait_until_whole()
        yield made
        made.check()


class Rounds:
    """Runs of one task, with faults. `hits` counts at which step of each sink its driver's node was lost."""

    def __init__(self, cluster: Cluster, source: Source, sinks: Sequence[FaultTarget]) -> None:
        self.cluster = cluster
        self.source = source
        self.sinks = sinks
        self.draw = random.Random(SEED)
        self.file = cluster.folder / "notes" / "all.jsonl"
        self.hits: Counter[tuple[str, str]] = Counter()
        self.faults = 0
        self.length_s = 60.0
        params = {
            "etls": {one.name: one.etl for one in sinks if one.etl is not None},
            "ingests": {one.name: one.ingest for one in sinks if one.ingest is not None},
            "notes": str(self.file),
        }
        cluster.register(TASK, "many_sinks", params=params, failover={"max": 1000}, retry={"attempts": 1})

    def said(self, token: int, name: str | None = None) -> list[str]:
        """What an attempt has noted, all of it or what one of its works has."""
        return [one["what"] for one in notes(self.file) if one["token"] == token and name in (None, one["name"])]

    def begun(self, run_id: str, after: int = 0) -> int:
        """The token of the newest attempt at the run, once it works and is greater than `after`; 0: the run is over."""

        def works() -> Any:
            run = self.cluster.run_of(run_id, fresh=False)
            token = max((one["token"] for one in run["attempts"]), default=0)
            if run["state"] in FINAL:
                return (0,)
            return (token,) if token > after and "begun" in self.said(token, "") else None

        [token] = wait_for(f"an attempt at {run_id} works", works, ENDS_S)
        return int(token)

    def without_fault(self) -> None:
        """A run to its end, which shows how long one takes."""
        self.source.add(BATCHES)
        run_id = self.cluster.run(TASK)
        self.begun(run_id)
        began_s = time.monotonic()
        self._ends(run_id)
        self.length_s = time.monotonic() - began_s

    def with_faults(self, faults: int, strike: Callable[["Rounds", str, str, int], None]) -> None:
        """A run that meets up to that many faults, each at a moment that is drawn for the sink with the fewest yet."""
        self.source.add(BATCHES)
        run_id = self.cluster.run(TASK)
        token, through = 0, set[str]()
        for _ in range(faults):
            token = self.begun(run_id, token)
            left = [sink for sink in self.sinks if sink.name not in through]
            if not token or not left or not self._moment(run_id, token, min(left, key=self.hit)):
                break
            node = next(one["node"] for one in self.cluster.run_of(run_id)["attempts"] if one["token"] == token)
            strike(self, run_id, node, token)
            self.faults += 1
            steps = {sink.name: step_after(self.said(token, sink.name)) for sink in self.sinks}
            print(f"fault {self.faults} met token {token}: {steps}", flush=True)
            self.hits.update(steps.items())
            through |= {name for name, step in steps.items() if step == "over"}
            assert {sink.name: torn for sink in self.sinks if (torn := sink.torn(self.source.last))} == {}
        self._ends(run_id)

    def _moment(self, run_id: str, token: int, sink: FaultTarget) -> bool:
        """Wait for a drawn moment while an attempt starts or writes to that sink; False if the attempt has ended."""
        messages = self.draw.randint(0, 2 if sink.whole else 5)  # a batch has three, and a run may be one batch

        def reached() -> bool:
            said = self.said(token, sink.name)
            ended = self.cluster.run_of(run_id, fresh=False)["state"] in FINAL
            return len(said) >= messages or "over" in said or ended

        wait_for(f"attempt {token} says {messages} things of {sink.name}", reached, ENDS_S)
        time.sleep(self.draw.uniform(0, 2 if messages else 10))
        return "over" not in self.said(token, "") and self.cluster.run_of(run_id)["state"] not in FINAL

    def _ends(self, run_id: str) -> None:
        run = self.cluster.wait_for_run(run_id, deadline_s=ENDS_S)
        assert run["state"] == "succeeded", run
        for sink in self.sinks:
            assert (sink.name, sink.torn(self.source.last)) == (sink.name, "")
            shown = sink.shown()
            assert shown == sink.expected(self.source.last), (sink.name, len(shown), shown[-1:])

    def report(self) -> None:
        """Print what was hit, and how often."""
        print(f"{self.faults} faults (seed {SEED}), {self.source.last} rows, an attempt takes {self.length_s:.0f} s")
        for sink in self.sinks:
            steps = {step: count for (name, step), count in sorted(self.hits.items()) if name == sink.name}
            print(f"{sink.name:20} hit {self.hit(sink)} times at work: {steps}")

    def hit(self, sink: FaultTarget) -> int:
        """How often the sink's driver was lost before it was through with it."""
        return sum(count for (name, step), count in self.hits.items() if name == sink.name and step != "over")

    def least(self) -> int:
        """How often that sink was hit which was hit least; without those that are through with a run in one batch."""
        return min(self.hit(sink) for sink in self.sinks if not sink.whole)

    def leftovers(self) -> dict[str, list[str]]:
        found = {sink.name: sorted(sink.leftovers()) for sink in self.sinks}
        for name in self.cluster.names:
            folder = self.cluster.folder / name / "scratch"
            found[name] = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
        return {name: left for name, left in found.items() if left}


def _is_java(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_text().strip() == "java"


def kill(rounds: Rounds, run_id: str, node: str, token: int) -> None:
    """kill -9 the node; it is started again at once."""
    rounds.cluster.kill(node)
    rounds.cluster.start(node)


def wake_late(rounds: Rounds, run_id: str, node: str, token: int) -> None:
    """Stop the node and all its processes, until another attempt works; then the old one and its JVM go on with it.

    Their supervisor sleeps on meanwhile, which would end them at once.
    """
    cluster, others = rounds.cluster, rounds.cluster.others(node)
    workers = cluster.workers(node)
    cluster.pause(node)
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    survivor = others[0]

    def overtaken() -> Any:
        run = cluster.get(f"/v1/runs/{run_id}", survivor, fresh=False)
        newer = [one["token"] for one in run["attempts"] if one["token"] > token]
        planned = newer and any("is planned" in what for what in rounds.said(newer[-1]))
        return planned or run["state"] == "succeeded"

    wait_for(f"another attempt than {token} plans", overtaken, ENDS_S)
    for jvm in [one for one in process_tree.processes() if one.pid in workers and _is_java(one.pid)]:
        below = process_tree.descendants([jvm.parent], process_tree.processes())
        for pid in (jvm.parent, *(one.pid for one in below)):
            process_tree.send(pid, signal.SIGCONT)
    time.sleep(rounds.draw.uniform(1, 4))  # both are at work
    for pid in cluster.workers(node):
        process_tree.send(pid, signal.SIGCONT)
    cluster.resume(node)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(
    ("strike", "times"), [(kill, 5), (kill, 20), (wake_late, 5)], ids=["kill-5", "kill-20", "wake-5"]
)
def test_a_sink_ends_as_without_a_fault_whenever_the_node_of_its_driver_is_lost(
    tmp_path: Path,
    cluster: Cluster,
    store: ObjectStore,
    database: EtlDatabase,
    group: str,
    strike: Callable[[Rounds, str, str, int], None],
    times: int,
) -> None:
    with webhook_receiver() as receiver:
        source = Source(tmp_path)
        rounds = Rounds(cluster, source, targets(group, source, tmp_path, store, database, receiver))
        try:
            rounds.without_fault()
            while rounds.least() < times:
                rounds.with_faults(rounds.draw.randint(2, 4), strike)
            rounds.without_fault()  # an attempt with nothing to do sweeps nothing
        finally:
            rounds.report()
        assert rounds.leftovers() == {}
