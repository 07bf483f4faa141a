"""The priority of a session, if the kernel schedules by sessions, and the rights of a process."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from node.execution.linux import lower_session, may_signal_everybody


def test_the_kernel_takes_the_priority_of_a_session() -> None:
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel has no autogroups")
    done = subprocess.run([sys.executable, "-c", _LOWERED], start_new_session=True, timeout=60, check=False)
    assert done.returncode == 0


_LOWERED = """
import time
from node.execution.linux import lower_session, session_priority

lower_session(7, session_priority())
end_s = time.monotonic() + 20  # other sessions of this machine may come first
while time.monotonic() < end_s:
    if open("/proc/self/autogroup").read().endswith("nice 7\\n"):
        raise SystemExit(0)
    time.sleep(0.01)
raise SystemExit("it is not lowered")
"""


def test_a_kernel_without_autogroups_is_tolerated() -> None:
    lower_session(10, None)


def test_what_the_kernel_refuses_is_said(caplog: pytest.LogCaptureFixture) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    lower_session(10, full)
    assert "it competes with the node: /proc/self/autogroup: No space left" in caplog.text
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(full)


def test_a_priority_change_refused_as_too_soon_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel answers EAGAIN to a second change within a tenth of a second."""
    asked: list[bytes] = []
    done = threading.Event()

    def write(descriptor: int, data: bytes) -> int:
        asked.append(data)
        if len(asked) < 3:
            raise BlockingIOError(errno.EAGAIN, "too soon")
        done.set()
        return len(data)

    monkeypatch.setattr("node.execution.linux.os.write", write)
    file = tmp_path / "autogroup"
    file.touch()
    lower_session(10, os.open(file, os.O_WRONLY), again_s=0.001)
    assert done.wait(10)
    assert asked == [b"10", b"10", b"10"]


def test_a_change_that_is_always_too_soon_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def write(descriptor: int, data: bytes) -> int:
        raise BlockingIOError(errno.EAGAIN, "too soon")

    monkeypatch.setattr("node.execution.linux.os.write", write)
    file = tmp_path / "autogroup"
    file.touch()
    lower_session(10, os.open(file, os.O_WRONLY), tries=1)
    assert "/proc/self/autogroup: too soon" in caplog.text


@pytest.mark.parametrize(
    ("capabilities", "may"),
    [("000001ffffffffff", True), ("000001ffffffffdf", False), ("0000000000000020", True), ("0000000000000000", False)],
)
def test_a_process_with_cap_kill_may_signal_any_process(tmp_path: Path, capabilities: str, may: bool) -> None:
    file = tmp_path / "status"
    file.write_text(f"Name:\tpython3\nCapPrm:\t0000000000000000\nCapEff:\t{capabilities}\nCapBnd:\t000001ffffffffff\n")
    assert may_signal_everybody(file) is may
