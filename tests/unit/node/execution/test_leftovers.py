"""The records of attempts, and the errors about processes that cannot be killed."""

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from node.cli.local import wait_for
from node.execution import process_tree
from node.execution.leftovers import Record, _find, _records, _remaining, _was_given_none, record_path
from tasks.processes import MARK


def test_a_record_removed_during_reading_is_skipped(tmp_path: Path) -> None:
    """Another attempt ends meanwhile. A dangling link is listed as well, and cannot be read."""
    record = Record(process_tree.boot_id(), 50, 100, 51, 101, "r:1")
    path = record_path(tmp_path, 50)
    path.parent.mkdir()
    path.write_text(json.dumps(asdict(record)))
    record_path(tmp_path, 40).symlink_to(tmp_path / "gone")
    record_path(tmp_path, 60).write_text("{")
    assert _records(tmp_path) == [record]


def test_errors_distinguish_other_users_processes_from_hung_ones() -> None:
    assert _remaining([50, 51], [51]) == (
        "processes 51 of an attempt belong to another user (sudo?), and this node may not signal them; end them as "
        "root (kill -9 51), or restart the machine or container"
    )
    assert "processes 50, 52 of an attempt do not end when killed" in _remaining([50, 52], [])


def test_a_process_is_found_at_any_moment_even_while_it_starts_a_program(tmp_path: Path) -> None:
    """The kernel shows no environment for a part of execve. This one starts a program again and again."""
    again = 'exec sh -c "$0" "$0"'
    child = subprocess.Popen(["sh", "-c", again, again], env={**os.environ, MARK: str(tmp_path)})
    try:
        entries = frozenset({f"{MARK}={tmp_path}".encode()})
        assert [found for _ in range(60) if (found := _find([], entries)) != [child.pid]] == []
    finally:
        child.kill()
        child.wait()


def test_a_process_without_an_environment_is_not_waited_for() -> None:
    child = subprocess.Popen(["sleep", "60"], env={})
    try:
        # Popen returns in the midst of execve, when the descriptors that close at it are closed.
        wait_for("the program runs", lambda: _was_given_none(child.pid), 10)
        assert not _was_given_none(os.getpid())
    finally:
        child.kill()
        child.wait()
    with pytest.raises(OSError, match="No such file"):
        _was_given_none(child.pid)
