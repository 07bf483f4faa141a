"""The priority of a session, if the kernel schedules by sessions, and the rights of a process."""

import errno
import threading
from pathlib import Path, PosixPath

import pytest

from node.execution.linux import lower_session, may_signal_everybody


def test_the_autogroup_priority_is_written(tmp_path: Path) -> None:
    file = tmp_path / "autogroup"
    lower_session(10, file)
    assert file.read_text() == "10"


def test_a_kernel_without_autogroups_is_tolerated(tmp_path: Path) -> None:
    lower_session(10, tmp_path / "not" / "there")


def test_a_priority_change_refused_as_too_soon_is_retried() -> None:
    """The kernel answers EAGAIN to a second change within a tenth of a second."""
    asked: list[str] = []
    done = threading.Event()

    class Autogroup(PosixPath):
        def write_text(self, data: str, *_: object, **__: object) -> int:
            asked.append(data)
            if len(asked) < 3:
                raise BlockingIOError(errno.EAGAIN, "too soon")
            done.set()
            return len(data)

    lower_session(10, Autogroup("autogroup"), again_s=0.001)
    assert done.wait(10)
    assert asked == ["10", "10", "10"]


@pytest.mark.parametrize(
    ("capabilities", "may"),
    [("000001ffffffffff", True), ("000001ffffffffdf", False), ("0000000000000020", True), ("0000000000000000", False)],
)
def test_a_process_with_cap_kill_may_signal_any_process(tmp_path: Path, capabilities: str, may: bool) -> None:
    file = tmp_path / "status"
    file.write_text(f"Name:\tpython3\nCapPrm:\t0000000000000000\nCapEff:\t{capabilities}\nCapBnd:\t000001ffffffffff\n")
    assert may_signal_everybody(file) is may
