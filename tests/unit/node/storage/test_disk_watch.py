"""Which attempts are stopped on a full disk, when the node is drained, and when it takes on work again."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from node.storage.disk_watch import QUIET_S, AttemptFiles, DiskWatch, Running, WatchedFolder
from node.storage.reserve import Reserve
from node.storage.room import GIB, IDLE_POLL_S, MIB, POLL_S, Bounds, Space
from node.storage.usage import held_bytes, trim_logs
from testkit.folders import deep_folder
from tests.unit.node.loop import serving, until

TOTAL = 160 * MIB
"""Of which 10 MiB are kept back, and one attempt may hold 80."""


def at(scratch: Path, scratch_bytes: int | None = None) -> AttemptFiles:
    return AttemptFiles((scratch,), scratch.with_name("log"), scratch_bytes)


class Disk:
    """A node's disk with two attempts on it; how much of it is free is what a test says."""

    def __init__(self, folder: Path) -> None:
        (folder / "raft").mkdir()
        self.free_bytes = TOTAL
        self.now_s = 1_000.0
        self.paths = {("small~1", 1): at(folder / "small"), ("large~1", 2): at(folder / "large")}
        self.stopped: list[tuple[str, str]] = []
        self.said: list[str | None] = []
        self.reserve = Reserve(folder / "raft")
        self.watch = DiskWatch(
            WatchedFolder("node-2", folder, folder / "logs", Bounds()),
            self.reserve,
            self,
            measure=lambda _folder: Space(TOTAL, self.free_bytes),
            now=lambda: self.now_s,
        )
        for path, held in ((folder / "small", MIB), (folder / "large", 6 * MIB)):
            path.mkdir()
            (path / "data").write_bytes(bytes(held))

    # -- the node

    def running(self) -> Running:
        return self.paths

    def stop_attempt(self, run_id: str, error: str) -> None:
        self.stopped.append((run_id, error))

    def stand_aside(self, why: str | None) -> None:
        self.said.append(why)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def stepping(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    serving(scenario())


def test_the_largest_is_stopped_first_and_the_others_only_if_that_is_not_enough(
    disk: Disk,
) -> None:
    async def scenario() -> None:
        disk.free_bytes = 15 * MIB
        await disk.watch.step()
        assert (len(disk.said), disk.stopped) == (1, [])
        disk.free_bytes = 9 * MIB  # of the missing 11 MiB the two hold 7 together
        await disk.watch.step()
        assert [run_id for run_id, _ in disk.stopped] == ["large~1", "small~1"]
        assert disk.stopped[0][1].startswith("no room on node-2: 9 MiB of 160 MiB are free, and this attempt held 6 ")
        await disk.watch.step()
        assert len(disk.stopped) == 2, "each is told once"
        assert len(disk.said) == 1
        disk.free_bytes = 31 * MIB
        await disk.watch.step()
        assert len(disk.said) == 1, "it may be filled again at once"
        disk.now_s += QUIET_S
        await disk.watch.step()
        assert disk.said[1:] == [None]

    stepping(scenario)


def test_one_is_enough_where_it_makes_room(disk: Disk) -> None:
    async def scenario() -> None:
        disk.free_bytes = 10 * MIB - 1
        disk.paths.pop(("small~1", 1))
        (disk.paths["large~1", 2].scratch[0] / "more").write_bytes(bytes(6 * MIB))
        disk.paths["small~1", 1] = at(Path("/nowhere"))
        await disk.watch.step()
        assert [run_id for run_id, _ in disk.stopped] == ["large~1"]

    stepping(scenario)


def test_an_idle_node_with_ample_space_measures_less_often(disk: Disk) -> None:
    async def scenario() -> None:
        disk.free_bytes = 20 * GIB
        assert await disk.watch.step() == POLL_S
        disk.paths = {}
        assert await disk.watch.step() == IDLE_POLL_S
        disk.free_bytes = 15 * MIB  # low
        assert await disk.watch.step() < POLL_S

    stepping(scenario)


def test_an_attempt_over_its_own_bounds_is_stopped_while_there_is_room(disk: Disk) -> None:
    async def scenario() -> None:
        disk.watch._set = Bounds(scratch_bytes=2 * MIB, log_bytes=MIB)
        await disk.watch.step()
        assert [run_id for run_id, _ in disk.stopped] == ["large~1"]
        assert disk.stopped[0][1] == (
            "over its limit of scratch: its scratch folder held 6 MiB, and ROTA_SCRATCH_BYTES on node-2 allows 2 MiB"
        )
        assert disk.said == []

    stepping(scenario)


def test_a_task_s_own_limit_counts_its_scratch_folder_alone_and_not_its_log(disk: Disk, tmp_path: Path) -> None:
    async def scenario() -> None:
        disk.paths = {("small~1", 1): at(tmp_path / "small", 2 * MIB), ("large~1", 2): at(tmp_path / "large", 4 * MIB)}
        (tmp_path / "log").write_bytes(bytes(8 * MIB))
        await disk.watch.step()
        assert disk.stopped == [
            ("large~1", "over its limit of scratch: its scratch folder held 6 MiB, and limits.scratch allows 4 MiB")
        ]

    stepping(scenario)


def test_the_service_goes_on_when_the_disk_cannot_be_measured_and_measures_when_woken(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        asked: list[int] = []
        rests, measured_again = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def measure(_folder: Path) -> Space:
            asked.append(1)
            if len(asked) == 1:
                raise OSError(5, "it does not answer")
            loop.call_soon_threadsafe(measured_again.set)
            return Space(TOTAL, TOTAL)

        async def for_ever(_seconds: float) -> None:
            rests.set()
            await asyncio.Event().wait()

        disk.watch._measure = measure
        disk.watch._sleep = for_ever
        service = loop.create_task(disk.watch.run())
        await rests.wait()
        assert "cannot be measured" in caplog.text
        disk.watch.wake()
        await measured_again.wait()
        service.cancel()
        await until(service.done)

    stepping(scenario)


def test_what_is_kept_back_takes_room_and_gives_it_up_once(disk: Disk, tmp_path: Path) -> None:
    async def scenario() -> None:
        await disk.watch.step()
        assert held_bytes(tmp_path / "raft" / "reserve") >= 5 * MIB
        assert disk.reserve.release()
        assert not disk.reserve.release()

    stepping(scenario)


def test_the_logs_of_old_runs_are_bounded_and_the_log_says_what_went(
    disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        for name in ("gone~1", "small~1"):
            (tmp_path / "logs" / name).mkdir(parents=True)
            (tmp_path / "logs" / name / "1.log").write_bytes(bytes(MIB))
        disk.watch._bounds = Bounds(logs_bytes=3 * MIB // 2)
        await disk.watch.trim()
        assert [path.name for path in (tmp_path / "logs").iterdir()] == ["small~1"], "it still runs"
        assert "deleted the logs of the 1 oldest runs, " in caplog.text

    stepping(scenario)


def test_a_folder_is_measured_without_what_its_links_lead_to(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(bytes(MIB))
    deep = tmp_path / "scratch" / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "link").symlink_to(tmp_path / "elsewhere")
    (deep / "folder").symlink_to(tmp_path)
    (deep / "data").write_bytes(bytes(200_000))
    with (deep / "sparse").open("wb") as sparse:
        sparse.truncate(10 * MIB)
    assert 200_000 <= held_bytes(tmp_path / "scratch") < MIB
    assert held_bytes(tmp_path / "gone") == 0


def test_the_oldest_logs_go_first_and_those_of_what_runs_stay(tmp_path: Path) -> None:
    for number, name in enumerate(("runs", "oldest", "older", "latest")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.log").write_bytes(bytes(100_000))
        os.utime(tmp_path / name, (number, number))
    cut, freed = trim_logs(tmp_path, 250_000, {"runs"})
    assert cut == 2
    assert freed >= 200_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "runs"]
    assert trim_logs(tmp_path / "none", 0, ()) == (0, 0)


def test_logs_that_are_deep_folders_are_deleted(tmp_path: Path) -> None:
    """A folder within a folder, a thousand times: Python's own removal calls itself for each."""
    deep_folder(tmp_path / "run", 1500)
    (tmp_path / "run" / "1.log").write_bytes(bytes(100_000))
    assert trim_logs(tmp_path, 0, ())[0] == 1
    assert list(tmp_path.iterdir()) == []
