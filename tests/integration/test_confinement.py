"""What an attempt may not have, tried from inside by whoever wrote it: by Landlock's present ABI, and by older ones.

The checks that the product makes by itself are not asked: what is refused here, the kernel refuses.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks import landlock, seccomp
from testkit.reachable import reachable, why_not

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(landlock.abi() == 0, reason="this kernel has no Landlock"),
]

ROOT = Path(__file__).parents[2]
NOBODY = 65534
SITE = next(path for path in sys.path if path.endswith("site-packages"))
DEBIANS = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
"""An interpreter that an ordinary user may run, whoever the tests' own one belongs to."""

SIGNALS = {"to signal the node", "to signal a neighbour", "an abstract socket"}
"""Refused since the sixth ABI."""
NETWORK = {
    "to connect",
    "to listen",
    "to listen without an address",
    "to connect by the first data",
    "a datagram",
    "a datagram of IPv6",
    "TCP of several paths",
    "the kernel's routes",
}
"""Refused to what needs no network."""
OF_32_BITS = {"a datagram of a 32-bit program"} if platform.machine() == "x86_64" else set()
TRUNCATE = {"to truncate what it reads"}
"""Refused since the third."""

NOT_FOR_COMMANDS = {
    "a file outside",
    "to write outside",
    "to write to what it reads",
    "to truncate what it reads",
    "to move what it reads",
    "a shell",
    "a program",
    "Python",
    "a script of its own",
    "a program's copy",
    *NETWORK,
    *OF_32_BITS,
}
"""What a command may."""

NOT_FOR_NOBODY = {
    "to write outside",
    "to write to what it reads",
    "to truncate what it reads",
    "to move what it reads",
}
"""What a command may not as a user to whom nothing belongs."""

USERS = ["root", pytest.param("ordinary", marks=pytest.mark.skipif(not DEBIANS.exists(), reason=f"no {DEBIANS}"))]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user may use: pytest's own are closed to others."""
    made = Path(tempfile.mkdtemp(prefix="rota-confined-"))
    os.chown(made, NOBODY if os.geteuid() == 0 else -1, -1)
    yield made
    shutil.rmtree(made)


def attempt(folder: Path, version: int, what: str, user: str, run_as: str = "") -> dict[str, Any]:
    """What came of each way of an attempt: "" where it was refused.

    The node is `user`'s, the attempt `run_as`'s.
    """
    argv = [sys.executable]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    if os.geteuid() == 0 and user == "ordinary":
        rights = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all")
        argv = ["setpriv", *rights, str(DEBIANS)]
        environ["PYTHONPATH"] += f":{SITE}"
    elif os.geteuid() == 0:
        os.chown(folder, 0, 0)
    if run_as:
        argv = [*reachable(), *argv]
        folder.chmod(0o711)
    done = subprocess.run(
        [*argv, "-m", "testkit.execution.confined", str(folder), str(version), what, run_as],
        capture_output=True,
        text=True,
        env=environ,
        cwd=ROOT,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["error"] is None, said["log"]
    found: dict[str, Any] = said["found"]
    assert found.pop("own") == "yes"
    return found


def got(found: dict[str, Any]) -> set[str]:
    return {name for name, came in found.items() if came and name not in ("capabilities", "given")}


@pytest.mark.parametrize("user", USERS)
def test_a_kind_gets_what_its_params_name_and_nothing_else(folder: Path, user: str) -> None:
    found = attempt(folder, landlock.NEWEST, "kind", user)
    allowed = set() if landlock.abi() >= 6 else SIGNALS
    assert got(found) == allowed
    assert found["given"] == "given"
    assert int(found["capabilities"], 16) == (4 if user == "root" else 0), "of root's, to read what is another user's"


@pytest.mark.parametrize("user", USERS)
def test_a_command_gets_what_the_user_may_without_the_nodes_own(folder: Path, user: str) -> None:
    found = attempt(folder, landlock.NEWEST, "command", user)
    allowed = NOT_FOR_COMMANDS | ({"what others may not read"} if user == "root" else set())
    assert got(found) == allowed | (set() if landlock.abi() >= 6 else SIGNALS)
    assert int(found["capabilities"], 16) == 0


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize("what", ["kind", "command"])
def test_as_another_user_an_attempt_gets_no_more_and_no_capability(folder: Path, what: str) -> None:
    found = attempt(folder, landlock.NEWEST, what, "root", run_as="nobody")
    # What the node allows, and the file system does not allow this user.
    given = set() if what == "kind" else NOT_FOR_COMMANDS - NOT_FOR_NOBODY
    allowed = given | (set() if landlock.abi() >= 6 else {"an abstract socket"})
    assert got(found) == allowed
    assert int(found["capabilities"], 16) == 0


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize("what", ["kind", "command"])
def test_without_landlock_another_user_is_kept_from_what_is_the_nodes(folder: Path, what: str) -> None:
    found = attempt(folder, 0, what, "root", run_as="nobody")
    mount = {"to mount in a namespace"} if found["to mount in a namespace"] else set()  # as the kernel's settings say
    network = NETWORK | OF_32_BITS if what == "kind" else set()
    assert got(found) == (NOT_FOR_COMMANDS - NOT_FOR_NOBODY - network) | {"an abstract socket"} | mount
    assert int(found["capabilities"], 16) == 0


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_by_an_older_abi_a_kind_gets_what_that_cannot_refuse(folder: Path, version: int) -> None:
    found = attempt(folder, version, "kind", "ordinary")
    assert got(found) == SIGNALS | (TRUNCATE if version < 3 else set())


def test_without_landlock_only_roots_capabilities_are_taken_away(folder: Path) -> None:
    found = attempt(folder, 0, "kind", "root")
    assert int(found["capabilities"], 16) == (4 if os.geteuid() == 0 else 0)
    assert {"a secret", "a shell"} <= got(found), "the node says at its start that it confines nothing"


NO_SECCOMP = """
import asyncio, os, platform, sys
from pathlib import Path
from node.execution import linux
from tasks import landlock, seccomp
from node.execution.order import AttemptLimits
from tasks.needs import Needs
from testkit.execution.attempts import play

machine = platform.machine()
architecture = next(iter(seccomp.MACHINES[machine]))
seccomp.MACHINES = {machine: {architecture: {"seccomp": seccomp._SECCOMP[machine]}}}
seccomp.RULES = {"seccomp": ()}
linux.gain_no_rights()
seccomp.enter_filter(network=True)

async def scene(made):
    for needs in (Needs(everything=True), Needs()):
        order = made.command("touch", sys.argv[2], needs=needs)
        ended = await made.ended(order)
        print(ended.end, ended.retry, ended.error)

play(Path(sys.argv[1]), scene, AttemptLimits(landlock=landlock.abi()))
"""
"""A node to which the kernel refuses seccomp(2), by a filter of its own: as a container's profile may."""


@pytest.mark.skipif(platform.machine() not in seccomp.MACHINES, reason="no filter is known for this machine")
def test_an_attempt_that_cannot_be_confined_fails_before_its_work(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    command = [sys.executable, "-c", NO_SECCOMP, str(tmp_path / "node"), str(ran)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    why = (
        "PermissionError: [Errno 1] seccomp: Operation not permitted: the attempt cannot be confined. Let this node use"
    )
    told = said.stdout.splitlines()
    assert (len(told), [line for line in told if not line.startswith(f"failed True {why}")]) == (2, []), said
    assert not ran.exists()
