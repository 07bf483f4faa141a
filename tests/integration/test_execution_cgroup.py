"""Attempts in cgroups of their own, as far as this machine lets a test make some; limits by the kernel's controllers.

Where cgroup v2 has no controllers (they may be taken by v1) the groups are there all the same, for what is killed.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.cli.local import wait_for
from node.execution import process_tree
from node.execution.cgroup import ATTEMPT, NODE, Delegation
from node.execution.leftovers import kill_leftovers
from node.execution.limits import Amounts
from node.execution.order import AttemptLimits, Order
from node.storage.room import MIB
from testkit.execution import greedy
from testkit.execution.attempts import ACT, Attempts, play, states, until
from testkit.execution.cgroups import delegated, own_cgroup

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
QUICK = AttemptLimits(stop_s=0.2, hand_over_s=0.2, most=Amounts(log=MIB))
NOBODY = 65534

TAKE_OVER = """
import os, sys
from node.execution.cgroup import take_over  # another user may not read the interpreter's folder
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
if sys.argv[2] != "0":
    os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
print(take_over())
print(open("/proc/self/cgroup").read())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A cgroup without processes."""
    with own_cgroup() as made:
        if made is None:
            pytest.skip("no cgroup of v2 can be made here")
        yield made


@pytest.fixture
def delegation(folder: Path) -> Delegation:
    return delegated(folder)


def held(delegation: Delegation, *controllers: str) -> None:
    if missing := [name for name in controllers if name not in delegation.controllers]:
        pytest.skip(f"cgroup v2 does not have the controllers {', '.join(missing)} here")


def python(made: Attempts, script: str, **limits: int) -> Order:
    return made.command(sys.executable, "-c", script, limits=Amounts(**limits), node="node-1")


def groups(folder: Path) -> list[Path]:
    return list(folder.glob(f"{ATTEMPT}*"))


def procs(group: Path) -> list[str]:
    return (group / "cgroup.procs").read_text().split()


def members(folder: Path) -> set[int]:
    """The processes in the groups of attempts."""
    return {int(pid) for group in groups(folder) for pid in procs(group)}


def test_all_processes_of_an_attempt_are_in_its_group_which_goes_with_it(
    tmp_path: Path, delegation: Delegation, kinds_for_tests: None
) -> None:
    async def scene(made: Attempts) -> None:
        order = made.launch({"what": "family"}, ACT)
        family = await made.family(order)
        assert set(family) <= members(Path(delegation.folder)), "also the one that has left the session"
        assert process_tree.lineage(family[-1]) & members(Path(delegation.folder)) == {family[-1]}
        [group] = [one for one in groups(Path(delegation.folder)) if str(family[-1]) in procs(one)]
        made.runner.kill(order.run_id, order.token)
        await made.ended(order)
        assert (states(family), group.exists()) == ("", False)

    play(tmp_path, scene, QUICK, delegation=delegation)


def test_spares_have_their_groups_before_an_attempt_comes(tmp_path: Path, delegation: Delegation) -> None:
    async def scene(made: Attempts) -> None:
        made.runner.expect()
        await until(lambda: len(members(Path(delegation.folder))) == 2)
        order = made.command("true")
        assert (await made.ended(order)).end == "succeeded"

    play(tmp_path, scene, QUICK, delegation=delegation)
    # A spare ends by itself, a moment after its nursery.
    wait_for("the groups of the spares are removed", lambda: not groups(Path(delegation.folder)))


HIDES = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "300"], {})
    os._exit(0)
time.sleep(300)
"""
"""Starts a process of another session, with another parent, and without any mark in its environment."""


def test_what_a_killed_node_has_left_is_found_by_its_group(tmp_path: Path, folder: Path) -> None:
    delegation = delegated(folder)
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from node.execution.cgroup import delegation_of\n"
        "from testkit.execution.attempts import attempts\n"
        "async def main():\n"
        "    async with attempts(Path(sys.argv[1]), delegation=delegation_of(sys.argv[2:])) as made:\n"
        f"        made.command(sys.executable, '-c', {HIDES!r})\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    node = subprocess.Popen([sys.executable, "-c", script, str(tmp_path), *delegation.words()], cwd=ROOT)
    hidden: list[int] = []

    def is_hidden(pid: int) -> bool:
        with contextlib.suppress(OSError):
            return not Path(f"/proc/{pid}/environ").read_bytes() and Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
        return False

    def found() -> bool:
        hidden[:] = [pid for pid in members(folder) if is_hidden(pid)]
        return hidden != []

    try:
        asyncio.run(until(found, 30))
        below = [one.pid for one in process_tree.descendants([node.pid], process_tree.processes())]
        # The node and all that could clear up after it, at once.
        supervisors = [pid for pid in below if pid not in members(folder)]
        for pid in (*supervisors, node.pid):
            os.kill(pid, signal.SIGSTOP)
        for pid in (*supervisors, node.pid):
            os.kill(pid, signal.SIGKILL)
        node.wait()
        assert states(hidden) != ""
        assert kill_leftovers(tmp_path) >= 0
        assert states(hidden) == ""
        assert members(folder) == set()
    finally:
        node.kill()
        node.wait()


def test_the_kernel_ends_what_takes_too_much_memory(tmp_path: Path, delegation: Delegation) -> None:
    held(delegation, "memory")

    async def scene(made: Attempts) -> None:
        ended = await made.ended(python(made, greedy.HOG.format(most_mib=512), memory=128 * MIB))
        why = "over its limit of memory: the kernel killed it, since limits.memory allows 128 MiB"
        assert (ended.end, ended.error) == ("failed", why)

    play(tmp_path, scene, QUICK, delegation=delegation)


def test_memory_that_no_process_has_mapped_counts_too(tmp_path: Path, delegation: Delegation) -> None:
    held(delegation, "memory")
    script = (
        "import os, time\n"
        "file = os.memfd_create('hog')\n"
        "for _ in range(512):\n"
        "    os.write(file, bytes(1 << 20))\n"
        "time.sleep(60)\n"
    )

    async def scene(made: Attempts) -> None:
        ended = await made.ended(python(made, script, memory=128 * MIB))
        assert ended.end == "failed"
        assert "limits.memory allows 128 MiB" in str(ended.error)

    play(tmp_path, scene, QUICK, delegation=delegation)


def test_the_kernel_refuses_a_process_too_many_and_the_attempt_is_ended(tmp_path: Path, delegation: Delegation) -> None:
    held(delegation, "pids")

    async def scene(made: Attempts) -> None:
        for child in ("pass", "os.setsid()", "os.fork()"):
            ended = await made.ended(python(made, greedy.BOMB.format(most=500, child=child), processes=32))
            why = "over its limit of processes: it had 32 processes and threads and tried to start more, and "
            assert (ended.end, ended.error) == ("failed", why + "limits.processes allows 32")

    play(tmp_path, scene, QUICK, delegation=delegation)


def test_the_kernel_gives_no_more_of_the_processor_than_the_limit(tmp_path: Path, delegation: Delegation) -> None:
    held(delegation, "cpu")
    script = (
        "import time\n"
        "begun, used = time.monotonic(), time.process_time()\n"
        "while time.monotonic() < begun + 3: pass\n"
        "print('share', (time.process_time() - used) / 3)\n"
    )

    async def scene(made: Attempts) -> None:
        order = python(made, script, cpu_milli=200)
        await made.ended(order)
        assert float(made.log(order).split()[-1]) < 0.3

    play(tmp_path, scene, QUICK, delegation=delegation)


@pytest.mark.parametrize("user", [0, NOBODY])
def test_a_node_takes_its_cgroup_over_and_again_after_it_has_started_itself_anew(user: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a cgroup to another user")
    with own_cgroup(user) as folder:
        if folder is None:
            pytest.skip("no cgroup of v2 can be made here")
        done = started(folder, user)
        assert f"Delegation(folder='{folder}'" in done, done
        assert f"/{folder.name}/{NODE}\n" in done
        again = started(folder / NODE, user)  # the kernel lets none into a group that has given controllers on
        assert f"Delegation(folder='{folder}'" in again, again
        left = folder / f"{ATTEMPT}1-1"
        left.mkdir()
        for path in (left, *left.glob("cgroup.*")):
            os.chown(path, user, user)
        sleeper = subprocess.Popen([shutil.which("sleep") or "sleep", "300"])
        (left / "cgroup.procs").write_text(str(sleeper.pid))
        assert f"Delegation(folder='{folder}'" in started(folder / NODE, user)
        assert sleeper.wait(10) == -signal.SIGKILL, "an attempt of an earlier start was there"
        assert not left.exists()


def started(folder: Path, user: int) -> str:
    done = subprocess.run(
        [sys.executable, "-B", "-c", TAKE_OVER, str(folder), str(user)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_cgroup_that_others_are_in_is_not_taken_over(folder: Path) -> None:
    with subprocess.Popen(["sleep", "300"]) as other:
        (folder / "cgroup.procs").write_text(str(other.pid))
        said = started(folder, 0)
        assert f"other processes are in {folder}: {other.pid}; start the node in a cgroup of its own" in said
        assert f"/{folder.name}\n" in said, "it stays where it is"
        other.kill()


def test_a_cgroup_that_cannot_be_written_is_not_taken_over(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    said = started(folder, NOBODY)
    assert "no cgroup v2 is delegated to this node: " in said
    assert (
        "cannot be written (systemd: Delegate=yes, and no ProtectControlGroups=yes; Docker mounts it read-only)" in said
    )
