"""Whether the disk that all nodes share stood still, as seen from outside."""

from pathlib import Path

from bench.chaos.disk_watch import STALL_S, DiskWatch
from node.cli.local import wait_for


def watched(folder: Path, stall_s: float = STALL_S, syncs: int = 3) -> DiskWatch:
    seen: list[int] = []
    watch = DiskWatch(folder, look_s=0.01, stall_s=stall_s, sync=seen.append)
    watch.start()
    wait_for("it has synced", lambda: len(seen) >= syncs)
    watch.stop()
    return watch


def test_a_disk_that_answers_is_no_stall(tmp_path: Path) -> None:
    watch = watched(tmp_path)
    assert not watch.stalls
    assert not watch.found
    assert "never" in watch.said()


def test_a_stall_lasts_from_the_sync_before_to_the_end_of_the_one_that_took_long(
    tmp_path: Path,
) -> None:
    [one, two, *_] = watched(tmp_path, stall_s=-1.0).stalls  # each takes longer
    assert one[0] < one[1] == two[0] < two[1]


def test_a_watch_that_cannot_write_says_so(tmp_path: Path) -> None:
    watch = DiskWatch(tmp_path / "not there")
    watch.start()
    wait_for("it has ended", lambda: watch.found)
    watch.stop()
    assert "No such file" in watch.found[0]
