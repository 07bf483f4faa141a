"""A real node that runs commands of somebody who wants more than he was given, as root and as an ordinary user."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tasks
from node.cli.local import wait_for
from node.client import path
from tasks import landlock
from testkit.execution.own_node import ALLOWED, SECRETS, OwnNode, own_node
from testkit.users import NOBODY, can_be_nobody

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(landlock.abi() < 6, reason="this kernel's Landlock has no scopes for signals"),
]

SECRET = "of-another-task-2b9e"
needs_root = pytest.mark.skipif(not can_be_nobody(), reason="needs root, and setpriv of util-linux")


@pytest.fixture(scope="module", params=[os.geteuid(), pytest.param(NOBODY, marks=needs_root)], ids=["own", "nobody"])
def node(request: pytest.FixtureRequest) -> Iterator[OwnNode]:
    with own_node(request.param, ROTA_CONFINE="required") as made:
        folder = made.folder / "secrets"
        folder.mkdir()
        (folder / "pg_password").write_text(SECRET)
        for each in (folder, folder / "pg_password", made.folder):
            os.chown(each, request.param, request.param)
        yield made


@pytest.fixture(scope="module")
def neighbour(node: OwnNode) -> str:
    """The id of a run that goes on beside the others, and has a secret in a file of its own."""
    script = 'echo "$S" > rows; while [ ! -e stop ]; do sleep 0.1; done'
    return node.begin({"argv": ["sh", "-c", script], "env": {"S": {"secret": "pg_password"}}})


WAYS = {
    "the file of a secret": "cat {folder}/secrets/pg_password",
    "a secret through /proc": "cat /proc/self/root{folder}/secrets/pg_password",
    "the names of secrets": "ls {folder}/secrets",
    "a secret by a hard link": "ln {folder}/secrets/pg_password here && cat here",
    "a secret by a symbolic link": "ln -s {folder}/secrets/pg_password here && cat here",
    "a secret by a copy": "cp {folder}/secrets/pg_password here",
    "a secret by a move": "mv {folder}/secrets/pg_password here",
    "a secret by tar": "tar -cf - {folder}/secrets | grep -a another",
    "the folder of secrets, moved": "mv {folder}/secrets .",
    "another secret instead": "echo mine > {folder}/secrets/pg_password",
    "a new secret": "echo mine > {folder}/secrets/planted",
    "the node's data": "ls {folder}/data",
    "the journal": "cat {folder}/data/raft/*",
    "the history": "cat {folder}/data/history.sqlite",
    "the logs of others": "cat {folder}/data/logs/*/*",
    "the scratch folders of others": "cat {folder}/data/scratch/*/rows",
    "to remove the data": "rm -r {folder}/data",
    "to move the data": "mv {folder}/data {folder}/gone",
    "to take the lock": "echo > {folder}/data/lock",
    "the environment of the node": "tr '\\0' '\\n' < /proc/{node}/environ | grep ROTA",
    "the environment of the supervisor": "tr '\\0' '\\n' < /proc/$PPID/../$(cut -d' ' -f4 /proc/$PPID/stat)/environ",
    "the environments of all": "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -q 'ROTA_NODE='",
    "the memory of the node": "head -c 1 /proc/{node}/mem",
    "the maps of the node": "cat /proc/{node}/maps | grep .",
    "the files of the node": "ls -l /proc/{node}/fd | grep data",
    "the folder of the node": "ls /proc/{node}/cwd/",
    "the root of the node": "cat /proc/{node}/root{folder}/secrets/pg_password",
    "to end the node": "kill -0 {node}",
    "to stop the node": "kill -STOP {node}",
    "to limit the node": "prlimit --pid {node} --nofile=1:1",
    "to slow the node down": "renice -n 19 -p {node}",
    "to give the node one processor": "taskset -cp 0 {node}",
    "to schedule the node when all else is idle": "chrt -i -p 0 {node}",
    "to have the node wait for its disk": "ionice -c 3 -p {node}",
    "to slow all of its user's processes down": "renice -n 19 -u $(id -u)",
    "to be the last that memory pressure takes": "echo -1000 > /proc/self/oom_score_adj",
    "to be of another user": "setpriv --reuid=1 true",
    "to mount": "mount -t tmpfs none /mnt",
    "a namespace in which it is root, to mount": "unshare --user --map-root-user --mount mount -t tmpfs none /mnt",
    "to write where Rota is installed": "touch {package}/planted.py",
    "to write where Python is installed": "touch {python}/planted.py",
    "the kernel's settings": "echo core > /proc/sys/kernel/core_pattern",
    "a device": "head -c 1 /dev/vda",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_command_is_refused_what_it_was_not_given(node: OwnNode, neighbour: str, way: str) -> None:
    script = WAYS[way]
    for name, value in {
        "folder": str(node.folder),
        "node": str(node.process.pid),
        "package": str(tasks.__path__[0]),
        "python": str(Path(os.__file__).parent),
    }.items():
        script = script.replace(f"{{{name}}}", value)
    run, log = node.run({"argv": ["sh", "-c", f"if {script}; then echo GOT IT; fi"]})
    assert run["state"] in ("succeeded", "failed"), run
    assert "GOT IT" not in log, log
    assert not [secret for secret in (SECRET, *SECRETS, *ALLOWED.values()) if secret in log]


def test_a_command_sets_its_own_priority_and_processors(node: OwnNode) -> None:
    """What stands in front of a program in many crontabs. By its number a process sets nothing, not even its own."""
    log = node.shell("nice -n 3 ionice -c 3 taskset -c 0 chrt -b 0 prlimit --core=0:0 sh -c 'nice; taskset -cp $$'")
    assert log.splitlines()[0] == str(min(19, os.nice(0) + 13))
    assert log.splitlines()[1].endswith("affinity list: 0")
    run, log = node.run({"argv": ["sh", "-c", "renice -n 19 -p $$"]})
    assert run["state"] == "failed"
    assert "can set only its own priority, processors and limits: put nice, ionice -c3, taskset" in log


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel has no autogroups")
def test_a_command_leaves_the_processor_to_the_node(node: OwnNode) -> None:
    """Where the kernel shares it between sessions, the nice value of a process does not count outside of its own."""
    lowered = "grep -q 'nice 10$' /proc/self/autogroup"
    run, log = node.run({"argv": ["sh", "-c", f"until {lowered}; do sleep 0.1; done"]})
    assert run["state"] == "succeeded", log


def test_folders_that_may_not_be_changed_go_with_the_scratch_folder(node: OwnNode) -> None:
    """As Go's module cache is: they stayed, for ever."""
    node.shell("mkdir -p mod/x/y shut && touch mod/x/f mod/x/y/f shut/f && chmod 555 mod/x/y mod/x mod && chmod 0 shut")
    scratch = node.folder / "data" / "scratch"
    wait_for("the scratch folder is gone", lambda: not list(scratch.glob("*/mod")), 10)


UNDER_WAY = """
import errno, os, resource, socket, time
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
kept, sent = [], 0
while True:
    kept.append(socket.socketpair())
    kept[-1][0].setblocking(False)
    try:
        while True:
            socket.send_fds(kept[-1][0], [b"x"], [0] * 253)
            sent += 253
    except OSError as error:
        if error.errno == errno.ETOOMANYREFS:
            break
print("under way:", sent, flush=True)
while not os.path.exists("stop"):
    time.sleep(0.1)
"""


def test_descriptors_that_a_command_keeps_under_way_delay_no_other(node: OwnNode) -> None:
    """The kernel counts them for the user, and refused them to the node whose limit was the lower one."""
    keeping = node.begin({"argv": [sys.executable, "-c", UNDER_WAY]})
    log_of = path("v1", "runs", keeping, "log")
    wait_for("it is refused more", lambda: b"under way" in b"".join(node.client.stream(log_of)), 30)
    assert node.shell("echo ran").strip() == "ran"
    assert "have sent too many descriptors" not in node.log
    node.client.call("DELETE", path("v1", "runs", keeping))
    assert node.ended(keeping)[0]["state"] == "cancelled"


def test_everything_is_as_it_was(node: OwnNode, neighbour: str) -> None:
    """After all these ways the node serves, has its data and secrets, and its other run goes on."""
    assert (node.folder / "secrets/pg_password").read_text() == SECRET
    assert node.client.get(path("v1", "runs", neighbour))["state"] == "running"
    assert node.shell("echo $S | rev", S={"secret": "pg_password"}).strip() == SECRET[::-1]
    run, log = node.run({"argv": ["sh", "-c", f"cat {node.folder}/secrets/pg_password"]})
    assert run["state"] == "failed"
    assert "this command is confined: it cannot open" in log
    node.client.call("DELETE", path("v1", "runs", neighbour))
    assert node.ended(neighbour)[0]["state"] == "cancelled"
