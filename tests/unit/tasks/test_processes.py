"""Whose descendant a process is."""

import os
import subprocess
import sys

import pytest

from tasks import processes
from tasks.processes import PARENT, STARTED, is_below, stat_fields

OWN = os.getpid()


def test_a_process_is_below_itself_and_its_ancestors() -> None:
    script = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    try:
        assert int(stat_fields(grandchild)[PARENT - 3]) == child.pid
        assert int(stat_fields(grandchild)[STARTED - 3]) >= int(stat_fields(child.pid)[STARTED - 3])
        for pid in (OWN, child.pid, grandchild):
            assert is_below(pid, (OWN,))
            assert is_below(pid, {OWN, 1 << 22})
            assert is_below(pid, (pid,))
        assert not is_below(OWN, (child.pid,))
        assert not is_below(child.pid, (grandchild,))
        assert not is_below(grandchild, ())
    finally:
        os.kill(grandchild, 9)
        child.stdout.close()
        child.wait()
    assert not is_below(1 << 22, (OWN,)), "no pid is that high"
    assert not is_below(child.pid, (OWN,)), "it is gone"


def test_a_process_whose_parent_has_just_ended_is_looked_for_under_its_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks 30 ended, and 40 became a child of 20; or another process took the number 30."""

    def line(parent: int, started: int) -> list[bytes]:
        fields = [b"0"] * 30
        fields[PARENT - 3], fields[STARTED - 3] = b"%d" % parent, b"%d" % started
        return fields

    for thirty in (None, line(1, 900)):
        looks = iter([line(30, 300), thirty, line(20, 300), line(10, 200)])

        def look(_: int) -> list[bytes]:
            found = next(looks)  # noqa: B023  this round's
            if found is None:
                raise ProcessLookupError
            return found

        monkeypatch.setattr(processes, "stat_fields", look)
        assert is_below(40, (10,))
        assert next(looks, None) is None


def test_a_tree_that_never_stands_still_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(pid: int) -> list[bytes]:
        if pid != 40:
            raise ProcessLookupError
        return [b"0"] + [b"30"] * 30

    monkeypatch.setattr(processes, "stat_fields", look)
    assert not is_below(40, (10,))
