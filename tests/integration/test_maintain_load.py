"""The maintenance of a table of millions of rows in little memory, and killed and paused again and again."""

import json
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from spark_tasks.maintain.errors import NoRoom
from spark_tasks.maintain.kind import Maintain
from testkit.faults.small_disk import SmallDisk, why_not
from testkit.spark.maintained import Lakehouse

pytestmark = pytest.mark.integration


def _peak_mib(pid: int) -> int:
    """The most memory that the process has had at one moment so far; 0 when it has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM:")), 0)


@pytest.mark.more
@pytest.mark.parametrize("cluster_by", [[], ["amount", "at"]], ids=["compact", "cluster"])
def test_memory_is_bounded(local: Lakehouse, cluster_by: list[str]) -> None:
    """Six million rows in 60 files take 500 MB in memory. The process takes about 150 MB without any."""
    made, rows = np.random.default_rng(1), 100_000
    for number in range(60):
        columns = {
            "n": np.arange(number * rows, (number + 1) * rows),
            "at": made.integers(0, 10**15, rows).astype("datetime64[us]"),
            "amount": made.random(rows),
            "text": [made.bytes(12).hex() for _ in range(rows)],
        }
        write_deltalake(local.url, pa.table(columns), mode="append")
    process = local.start(cluster_by=cluster_by, memory_bytes=64 << 20, target_bytes=32 << 20)
    peak_mib = 0
    while process.poll() is None:
        # Not from wait4: what that tells begins with what this process had when it forked.
        peak_mib = max(peak_mib, _peak_mib(process.pid))
        time.sleep(0.01)
    assert process.stdout is not None
    done = json.loads(process.stdout.read())
    print(f"{done}, peak {peak_mib} MiB")
    assert (done["clustered_files" if cluster_by else "compacted_files"], done["rows"]) == (60, 6_000_000)
    assert 100 < peak_mib < 450


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_killed_and_paused_at_any_moment_it_loses_and_doubles_nothing(local: Lakehouse, seed: int) -> None:
    draw = random.Random(seed)
    paused: list[subprocess.Popen[str]] = []
    for _ in range(8):
        local.fill(4)
        process = local.start(cluster_by=["n"] if draw.random() < 0.5 else [])
        time.sleep(draw.uniform(0.5, 2.5))
        if draw.random() < 0.5:
            process.send_signal(signal.SIGSTOP)
            paused.append(process)
        else:
            process.kill()
            process.communicate()
        if paused and draw.random() < 0.5:
            late = paused.pop(0)
            late.send_signal(signal.SIGCONT)
            while late.poll() is None:
                assert local.is_whole(), f"seed {seed}"
            late.communicate()
        assert local.is_whole(), f"seed {seed}"
    for process in paused:
        process.kill()
        process.communicate()
    assert local.was_whole(), f"seed {seed}"
    local.maintain(keep_h=0, full=True)
    assert local.is_whole()
    assert len(local.data_names()) == len(local.live())


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of 64 MiB."""
    if (why := why_not()) is not None:
        pytest.skip(why)
    made = SmallDisk(tmp_path / "disk")
    yield made
    made.close()


@pytest.mark.more
@pytest.mark.parametrize("full", ["table", "scratch"])
def test_a_disk_that_is_full_is_named_and_leaves_the_table_as_it_was(
    tmp_path: Path, disk: SmallDisk, full: str
) -> None:
    lake = Lakehouse(tmp_path, name="disk/table" if full == "table" else "table")
    made = np.random.default_rng(1)
    for number in range(8):
        rows = 200_000
        columns = {"n": np.arange(number * rows, (number + 1) * rows), "x": made.random(rows)}
        write_deltalake(lake.url, pa.table(columns), mode="append")
        lake.numbers_put += list(range(number * rows, (number + 1) * rows))
    context = lake.attempt(cluster_by=["x"], memory_bytes=16 << 20)
    if full == "scratch":
        context.scratch = disk.folder / "scratch"
        context.scratch.mkdir()
    filler = disk.folder / "filler"
    free = shutil.disk_usage(disk.folder).free - (12 << 20)
    filler.write_bytes(bytes(free))
    old = lake.data_names()
    with pytest.raises(
        NoRoom, match=r"the scratch folder .* make room" if full == "scratch" else "no room for new files"
    ):
        Maintain().run(context)
    assert lake.data_names() == old
    assert lake.was_whole()
    filler.unlink()
    assert lake.maintain(cluster_by=["x"], memory_bytes=16 << 20)["clustered_files"] == 8
    assert lake.was_whole()
