"""Runs and their logs are kept for the same time, the setting `history_days`."""

import asyncio
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from node.execution.order import log_path
from node.history.retention import FIRST_S, ROUND_S, UNSURE_S, Retention, delete_logs
from node.history.store import HistoryStore
from node.state.value import Settings, State
from testkit.folders import deep_folder
from tests.unit.node.duty.given import run, task, world
from tests.unit.node.history.test_store import ended, ids
from tests.unit.node.loop import Naps, serving
from tests.unit.node.state.given import cluster

DAY_US = 86_400_000_000
NOW_US = 100 * DAY_US


def write(folder: Path, run_id: str, attempt: int, age_days: float) -> Path:
    path = log_path(folder, run_id, attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("said")
    at_s = (NOW_US - age_days * DAY_US) / 1e6
    os.utime(path, (at_s, at_s))
    os.utime(path.parent, (at_s, at_s))
    return path


def forget(folder: Path, history: HistoryStore, state: State) -> None:
    settings = Settings(history_days=10)
    serving(Retention(folder, history, lambda: replace(state, settings=settings)).delete_older(NOW_US))


def test_old_runs_are_deleted_and_active_ones_kept(tmp_path: Path) -> None:
    row = task("t")
    active = run(row, "running")
    old, new, held = write(tmp_path, "old", 1, 11), write(tmp_path, "new", 1, 9), write(tmp_path, active.run_id, 1, 50)
    write(tmp_path, "both", 1, 50)
    later = write(tmp_path, "both", 2, 1)
    stray = tmp_path / "logs" / "stray"
    stray.write_text("no folder")
    history = HistoryStore(tmp_path / "history.db")
    history.record(2, [(1, ended(89 * DAY_US)), (2, ended(91 * DAY_US))])
    assert len(history.runs(None, None, None, None, 9)) == 2  # written by now: another thread does that
    forget(tmp_path, history, world(row, active))
    assert [path.exists() for path in (old.parent, new, held, later, stray)] == [False, True, True, True, True]
    assert ids(history.runs(None, None, None, None, 9)) == [f"orders~{91 * DAY_US}"]
    history.close()


def test_a_member_without_logs_deletes_nothing(tmp_path: Path) -> None:
    history = HistoryStore(tmp_path / "history.db")
    forget(tmp_path, history, State())
    history.close()


@pytest.mark.parametrize(
    ("members", "agreed_at", "deleted_at"), [("abc", 3, 3), ("abc", 0, 0), ("a", 99, 0), ("", 3, 3)]
)
def test_nothing_is_deleted_while_clocks_disagree(
    tmp_path: Path, members: str, agreed_at: int, deleted_at: int
) -> None:
    """Round by round. The only member of a cluster trusts its own clock; one that knows no members does not."""
    folder, naps = tmp_path, Naps()
    history = HistoryStore(folder / "history.db")
    history.record(1, [(1, ended(DAY_US))])
    log = write(folder, "old", 1, NOW_US / DAY_US - 1)
    state = cluster(*members).state if members else State()
    there: list[bool] = []

    async def sleep(seconds: float) -> None:
        there.append(log.exists() and history.run(f"orders~{DAY_US}") is not None)
        await naps(seconds)
        if len(naps.asked) == 6:
            raise asyncio.CancelledError

    async def scenario() -> None:
        retention = Retention(folder, history, lambda: state, lambda: len(there) > agreed_at, sleep)
        with suppress(asyncio.CancelledError):
            await retention.run()

    serving(scenario())
    first, *after = there
    assert first and after == [number < deleted_at for number in range(5)]
    assert naps.asked == [FIRST_S] + [UNSURE_S if number < deleted_at else ROUND_S for number in range(5)]
    history.close()


def test_a_history_file_that_is_too_large_is_trimmed_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    history = HistoryStore(tmp_path / "history.db")
    history.record(3000, [(number, ended(number)) for number in range(1, 3001)])
    history.flush()

    async def once(_seconds: float) -> None:
        if caplog.text:
            raise asyncio.CancelledError
        await asyncio.sleep(0)

    async def scenario() -> None:
        with suppress(asyncio.CancelledError):
            await Retention(tmp_path, history, State, sleep=once, history_bytes=100_000).bound()

    serving(scenario())
    assert "oldest finished runs, up to 1970-01-01T00:00:00+00:00, are deleted here" in caplog.text
    assert "ROTA_HISTORY_BYTES" in caplog.text
    assert history.used_bytes <= 100_000
    history.close()


def test_old_logs_that_are_deep_folders_are_deleted_and_what_stays_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep_folder(tmp_path / "deep", 1500)
    for name in ("deep/f", "deep/d", "deep"):
        os.utime(tmp_path / name, (0, 0))
    delete_logs(tmp_path, NOW_US, ())
    assert list(tmp_path.iterdir()) == []

    (tmp_path / "kept").mkdir()
    os.utime(tmp_path / "kept", (0, 0))
    monkeypatch.setattr(os, "rmdir", lambda *_, **__: (_ for _ in ()).throw(PermissionError()))
    with pytest.raises(OSError, match=f"some logs in {tmp_path} cannot be removed: kept"):
        delete_logs(tmp_path, NOW_US, ())
