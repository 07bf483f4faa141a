"""A Spark session that was started before there was an attempt for it."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from node.execution import process_tree
from node.execution.attempt_events import AttemptEnded, CheckpointAsked
from node.execution.limits import Amounts
from node.execution.order import Order
from node.execution.preparation import Preparation
from node.runtime.boottime import boottime_s
from node.storage.room import MIB
from tasks.access import EVERYTHING
from tasks.installed_kinds import load_kind, preparation_of
from testkit.execution.attempts import Attempts, play, states, until

pytestmark = [pytest.mark.integration, pytest.mark.more]

INGEST = "spark_tasks.ingest.kind:Ingest"
NAME = preparation_of(load_kind(INGEST))
ENV: Mapping[str, str] = {"RUN_SPARK_MASTER": "local[2]"}
STARTS_S = 120.0
"""A session takes a few seconds to start; on a busy machine, half a minute."""


def jvms(made: Attempts) -> list[int]:
    """The JVMs below the runner's nursery."""
    assert made.runner.nursery_pid is not None
    below = process_tree.descendants([made.runner.nursery_pid], process_tree.processes())
    return [one.pid for one in below if _name(one.pid) == "java"]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""  # it has just ended


async def session(made: Attempts) -> int:
    """Have a session started; its JVM."""
    made.runner.renew(boottime_s() + 600)
    made.runner.prepare(NAME, 1, 1)
    await until(lambda: made.runner.prepared_ready(NAME) == 1, STARTS_S)
    made.runner.prepare(NAME, 0, 1)
    [jvm] = jvms(made)
    return jvm


async def ingested(made: Attempts, folder: Path, **more: Any) -> tuple[Order, AttemptEnded]:
    """An attempt that ingests two files."""
    (folder / "in").mkdir()
    for number in range(2):
        (folder / "in" / f"{number}.csv").write_text("n,text\n" + "".join(f"{row},x\n" for row in range(10)))
    params = {"source": f"{folder}/in/*.csv", "table": f"{folder}/table", "format": "csv"}
    order = made.launch(params, INGEST, preparation=NAME, access=EVERYTHING, env=ENV, lease_s=600, **more)
    while True:
        event = await made.next_event(STARTS_S)
        if isinstance(event, CheckpointAsked):
            made.runner.checkpoint_done(order.run_id, order.token, event.sequence, "ok")
        elif isinstance(event, AttemptEnded):
            return order, event


def test_an_ingest_runs_in_the_session_that_was_started_for_it(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        jvm = await session(made)
        order, ended = await ingested(made, tmp_path)
        assert (ended.end, (ended.result or {}).get("rows")) == ("succeeded", 20), ended
        assert made.log(order).count("WARNING: Using incubator") <= 1, "one JVM was started"
        await until(lambda: states([jvm]) == "" and not list((tmp_path / "scratch").glob("*")))

    play(tmp_path, scene, preparations={NAME: Preparation(ENV)})


def test_an_attempt_starts_a_session_of_its_own_where_the_prepared_jvm_was_killed(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        jvm = await session(made)
        os.kill(jvm, signal.SIGKILL)
        await until(lambda: states([jvm]) == "")
        _, ended = await ingested(made, tmp_path)
        assert (ended.end, (ended.result or {}).get("rows")) == ("succeeded", 20), ended

    play(tmp_path, scene, preparations={NAME: Preparation(ENV)})


@pytest.mark.parametrize("prepared", [False, True])
def test_a_jvm_that_takes_more_than_its_attempt_may_have_is_ended_with_it(tmp_path: Path, prepared: bool) -> None:
    async def scene(made: Attempts) -> None:
        jvm = await session(made) if prepared else None
        _, ended = await ingested(made, tmp_path, limits=Amounts(memory=160 * MIB), node="node-1")
        assert ended.end == "failed", ended
        assert str(ended.error).startswith("over its limit of memory: its "), ended
        assert str(ended.error).endswith("and limits.memory allows 160 MiB")
        assert jvms(made) == []
        assert jvm is None or states([jvm]) == ""

    play(tmp_path, scene, preparations={NAME: Preparation(ENV)})
