"""What an attempt may use: it is ended when it uses more, says so, and its neighbours go on. With real processes."""

import asyncio
import sys
from pathlib import Path

import pytest

from node.execution.limits import Amounts
from node.execution.order import AttemptLimits
from node.storage.room import GIB, MIB
from tests.integration.attempts import Attempts, play, until

pytestmark = pytest.mark.integration

BOMB = """
import os, sys, time
for _ in range({most}):
    try:
        pid = os.fork()
    except OSError:
        break
    if pid == 0:
        {child}
        time.sleep(60)
        os._exit(0)
time.sleep(60)
"""
"""Starts up to `most` processes, as fast as it can, and waits. Bounded, should the limit fail."""

HOG = """
import time
held = []
while len(held) < {most_mib} // 16:
    held.append(bytearray(b'x' * (16 << 20)))
time.sleep(60)
"""
"""Takes up to `most_mib`, at more than 1 GB/s, and waits."""

SHARED = """
import os, time
held = bytearray(b'x' * (60 << 20))
for _ in range(6):
    if os.fork() == 0:
        time.sleep({sleep_s})
        os._exit(0)
for _ in range(6):
    os.wait()
"""
"""Seven processes that share 60 MiB: 420 MiB, were they counted for each of them."""


def python(made: Attempts, script: str, **limits: int):  # noqa: ANN201
    return made.command(sys.executable, "-c", script, limits=Amounts(**limits), node="node-1")


@pytest.mark.parametrize(
    "child", ["pass", "os.setsid()", "os.setsid(); os.close(0); os.close(1); os.close(2)", "os.fork()"]
)
def test_a_fork_bomb_is_ended_and_says_why(tmp_path: Path, child: str) -> None:
    async def scene(made: Attempts) -> None:
        neighbour = made.command("sleep", "300")
        await made.started(neighbour)
        bomb = python(made, BOMB.format(most=2000, child=child), processes=64)
        ended = await made.ended(bomb)
        assert ended.end == "failed"
        assert ended.error is not None
        assert ended.error.startswith("over its limit of processes: it had "), ended.error
        assert ended.error.endswith("processes and threads, and limits.processes allows 64")
        assert ended.retry
        made.runner.cancel(neighbour.run_id, neighbour.token)
        assert (await made.ended(neighbour)).end == "cancelled", "the neighbour was left alone"

    play(tmp_path, scene)


def test_a_memory_hog_is_ended_before_it_has_much_more_than_its_limit(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        hog = python(made, HOG.format(most_mib=1536), memory=256 * MIB)
        ended = await made.ended(hog)
        assert ended.end == "failed"
        assert ended.error is not None
        assert ended.error.startswith("over its limit of memory: its ")
        assert ended.error.endswith("and limits.memory allows 256 MiB")

    play(tmp_path, scene)
