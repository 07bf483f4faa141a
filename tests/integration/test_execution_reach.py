"""Attempts with processes that their node may not signal: another user's, as `sudo` makes them.

The node is a process without CAP_KILL; the test, as root, can end what it cannot.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from node.execution import process_tree
from node.execution.leftovers import kill_leftovers
from testkit.execution.attempts import until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("setpriv") is None,
        reason="needs root, and setpriv of util-linux: it gives rights away and ends other users' processes",
    ),
]

ROOT = Path(__file__).parents[2]
SETPRIV = shutil.which("setpriv") or ""
WITHOUT_CAP_KILL = (SETPRIV, "--bounding-set=-kill")
NOBODY = 65534
WAIT_S = 30.0
AS_NOBODY = (
    *(SETPRIV, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    # The interpreter and the test's folder may be readable by root only.
    *("--inh-caps=-all,+dac_override,+dac_read_search", "--ambient-caps=-all,+dac_override,+dac_read_search"),
)
ANOTHER_USERS = ("setpriv", f"--reuid={NOBODY}", "sleep", "600")

START = """
import functools, sys
from node.app import daemon
from node.app.config import load_config

daemon.kill_leftovers = functools.partial(daemon.kill_leftovers, wait_s=0.2)
try:
    daemon.run_node(load_config({
        "ROTA_NODE": "node-1", "ROTA_MEMBERS": "node-1=127.0.0.1:1:2", "ROTA_DATA": sys.argv[1],
        "ROTA_SECRET": "between members of a test",
    }))
except daemon.CannotStart as error:
    print(error)
"""


class Node:
    """A runner with one attempt, in a process of its own, and its output."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._out, self._err = folder / "out", folder / "err"

    @property
    def said(self) -> str:
        return self._out.read_text()

    @property
    def logged(self) -> str:
        return self._err.read_text()

    @property
    def nursery(self) -> int:
        return int(self.said.split()[1])

    def wait_for(self, word: str) -> None:
        asyncio.run(until(lambda: word in self.said, WAIT_S))

    def wait_for_log(self, word: str) -> None:
        asyncio.run(until(lambda: word in self.logged, WAIT_S))

    def below(self) -> list[process_tree.Process]:
        return process_tree.descendants([self.process.pid], process_tree.processes())

    def another_users(self) -> process_tree.Process:
        """The process that the command has become, once it is another user's."""
        found: list[process_tree.Process] = []

        def there() -> bool:
            found[:] = [one for one in self.below() if _name(one.pid) == "sleep"]
            return len(found) == 1

        asyncio.run(until(there, WAIT_S))
        return found[0]

    def supervisor(self) -> int:
        """That of the attempt. Others of the nursery's may just be starting, or ending."""
        below = self.below()
        parents, at = {one.pid: one.parent for one in below}, self.another_users().pid
        while parents[at] != self.nursery:
            at = parents[at]
        return at


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


@contextmanager
def a_node(folder: Path, *argv: str, rights: tuple[str, ...] = WITHOUT_CAP_KILL, lease_s: float = 60) -> Iterator[Node]:
    """All that it has started is ended with it: as root, whoever's it is."""
    data = folder / "data"
    script = str(ROOT / "testkit/execution/node_for_tests.py")
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [*rights, sys.executable, script, str(data), str(lease_s), *argv],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=out,
            stderr=err,
        )
    made = Node(folder, process)
    try:
        yield made
    finally:
        below = made.below()
        process.kill()
        process.wait()
        for one in below:
            # By its start too: another may have its number by now.
            if (now := process_tree.process(one.pid)) is not None and now.started == one.started:
                process_tree.send(one.pid, signal.SIGKILL)
        kill_leftovers(data)


def test_after_a_lapse_the_supervisor_stays_until_unreachable_processes_end(tmp_path: Path) -> None:
    with a_node(tmp_path, *ANOTHER_USERS, lease_s=1) as node:
        beyond = node.another_users()
        node.process.send_signal(signal.SIGSTOP)
        worker = beyond.session
        # Frozen; or ended, with a supervisor that ended over what it may not signal.
        asyncio.run(until(lambda: _state(worker) in {"T", "", "Z"}, WAIT_S))
        node.process.send_signal(signal.SIGCONT)
        node.wait_for("Frozen(")
        node.wait_for("Thawed(")
        node.wait_for_log(f"kill -9 {beyond.pid}\n")
        assert "Ended(" not in node.said
        os.kill(beyond.pid, signal.SIGKILL)
        node.wait_for("Ended(")
        assert "end='failed'" in node.said
        assert "'setpriv' was ended by SIGKILL" in node.said


def _state(pid: int) -> str:
    found = process_tree.process(pid)
    return "" if found is None else found.state


def test_unreachable_processes_of_a_killed_supervisor_end_the_run_when_they_end(tmp_path: Path) -> None:
    with a_node(tmp_path, *ANOTHER_USERS) as node:
        beyond, nursery = node.another_users(), node.nursery
        os.kill(node.supervisor(), signal.SIGKILL)
        node.wait_for_log(f"run task~1: processes {beyond.pid} of an attempt belong to another user")
        assert "Ended(" not in node.said, "the run must not be reported as ended while its process runs"
        assert _state(nursery) not in {"", "Z"}, "the supervisor tried too, and still runs"
        os.kill(beyond.pid, signal.SIGKILL)
        node.wait_for("Ended(")
        assert "its supervisor was killed" in node.said


def test_a_start_names_leftovers_it_may_not_signal_and_says_what_to_do(tmp_path: Path) -> None:
    with a_node(tmp_path, *ANOTHER_USERS) as node:
        beyond = node.another_users()
        node.process.kill()
        node.process.wait()
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        start = [*WITHOUT_CAP_KILL, sys.executable, "-c", START, str(tmp_path / "data")]
        done = subprocess.run(start, env=environment, capture_output=True, text=True, check=False, timeout=30)
        try:
            assert done.stdout == (
                f"an earlier start of this node left processes behind: processes {beyond.pid} of an attempt belong to "
                f"another user (sudo?), and this node may not signal them; end them as root (kill -9 {beyond.pid}), or "
                "restart the machine or container; then start the node again\n"
            ), done.stderr
        finally:
            os.kill(beyond.pid, signal.SIGKILL)


def test_without_cap_kill_setuid_programs_gain_no_rights(tmp_path: Path) -> None:
    """A setuid program such as sudo could not be signalled any more: here it fails, and its log says why."""
    sudo = tmp_path / "sudo"
    shutil.copy(SETPRIV, sudo)
    sudo.chmod(0o755 | stat.S_ISUID)
    if os.statvfs(tmp_path).f_flag & os.ST_NOSUID:
        pytest.skip("needs a temporary folder that is not mounted nosuid")
    with a_node(tmp_path, str(sudo), "--reuid=0", "sleep", "600", rights=AS_NOBODY) as node:
        node.wait_for("Ended(")
        assert f"'{sudo}' ended with exit code" in node.said
        assert "setresuid failed: Operation not permitted" in (tmp_path / "data/logs/task~1/1.log").read_text()


@pytest.mark.parametrize(("rights", "kept"), [(WITHOUT_CAP_KILL, "1"), ((SETPRIV,), "0")])
def test_no_new_privs_is_set_only_without_cap_kill(tmp_path: Path, rights: tuple[str, ...], kept: str) -> None:
    with a_node(tmp_path, "setpriv", f"--reuid={NOBODY}", "cat", "/proc/self/status", rights=rights) as node:
        node.wait_for("Ended(")
        assert "end='succeeded'" in node.said
        lines = (tmp_path / "data/logs/task~1/1.log").read_text().splitlines()
        assert f"NoNewPrivs:\t{kept}" in lines
        assert f"Uid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}" in lines, "root can become another user all the same"
