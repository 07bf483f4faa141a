"""A Spark session in the domain of its attempt, without the checker: SQL, Java and Python workers that want more."""

import asyncio
import os
from pathlib import Path

import pytest

from node.execution.attempt_events import AttemptEnded
from node.execution.order import AttemptLimits
from node.execution.preparation import Preparation
from node.runtime.boottime import boottime_s
from spark_tasks.spark.session import prepare
from spark_tasks.spark.tools import SPARK_TOOLS
from tasks import landlock
from tasks.access import Access
from tasks.needs import Needs
from tasks.reach import Reach
from testkit.execution.attempts import Attempts, attempts, until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.more,
    pytest.mark.skipif(landlock.abi() < 6, reason="this kernel's Landlock has no scopes for signals"),
]

KIND = "testkit.spark.sql_attacker:SqlAttacker"
PREPARE = f"{prepare.__module__}:{prepare.__qualname__}"
WAIT_S = 600.0
"""A session and its attacks take half a minute of processor time, at the priority of work: beside others it waits."""

GOOD = {"a query": 499_500, "a Python worker": 10, "what is given": 1, "Parquet": 10}
"""What goes on as before."""


def laid_out(folder: Path) -> dict[str, object]:
    files = {"secret": "secrets/pg_password", "outside": "elsewhere/file", "given": "srv/given.csv"}
    for name in files.values():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("TOPSECRET")
    return {name: str(folder / path) for name, path in files.items()} | {"node": os.getpid()}


async def attacked(made: Attempts, params: dict[str, object], access: Access, *, prepared: bool) -> AttemptEnded:
    needs = Needs(reaches=(Reach("", "source", "", str(params["given"])),), tools=(SPARK_TOOLS,))
    order = made.launch(
        params, KIND, lease_s=600, access=access, needs=needs, preparation=PREPARE if prepared else "", env=ENV
    )
    while True:
        event = await made.next_event(WAIT_S)
        if isinstance(event, AttemptEnded):
            assert event.end == "succeeded", made.log(order)
            return event


ENV = {"RUN_SPARK_MASTER": "local[2]"}


@pytest.mark.usefixtures("kinds_for_tests")
@pytest.mark.parametrize("prepared", [False, True], ids=["unprepared", "prepared"])
def test_a_session_opens_runs_and_signals_nothing_that_its_attempt_was_not_given(
    tmp_path: Path, prepared: bool
) -> None:
    own = (str(tmp_path / "secrets"), str(tmp_path / "node"))
    access = Access("node-1", (str(tmp_path / "srv"),), (str(tmp_path / "out"),), own=own)

    params = laid_out(tmp_path)

    async def scene() -> None:
        limits = AttemptLimits(landlock=landlock.abi())
        preparations = {PREPARE: Preparation(ENV, (SPARK_TOOLS,))}
        async with attempts(tmp_path / "node", limits, preparations, access) as made:
            if prepared:
                made.runner.renew(boottime_s() + 600)
                made.runner.prepare(PREPARE, 1, 1)
                await until(lambda: made.runner.prepared_ready(PREPARE) == 1, WAIT_S)
                made.runner.prepare(PREPARE, 0, 1)
            ended = await attacked(made, params, access, prepared=prepared)
            found = dict(ended.result or {})
            assert {name: found.pop(name) for name in GOOD} == GOOD
            assert {name: came for name, came in found.items() if came} == {}

    asyncio.run(scene())
