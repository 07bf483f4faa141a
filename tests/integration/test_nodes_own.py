"""What is the node's own stays the node's: its secrets in variables, its memory, and variables that tasks may refer to.

Each is tried on a real node, as root and as an ordinary user.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.cli.local import LocalCluster, wait_for
from node.execution import process_tree
from node.execution.leftovers import kill_leftovers, record_path
from node.settings.own_environment import HANDED
from testkit.execution.attempts import pids, pids_path, states, written
from testkit.execution.own_node import ALLOWED, OWN, SECRETS, OwnNode, own_node
from testkit.users import NOBODY, as_nobody, can_be_nobody, folder_of

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]

ALL_ENVIRONMENTS = "env; cat /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ 2>/dev/null | tr '\\0' '\\n'; true"

UNCONFINED = {"ROTA_COMMAND_CONFINED": "0"}
"""What is tried here holds without the kernel's confinement, as it must on a kernel that has none."""

needs_root = pytest.mark.skipif(not can_be_nobody(), reason="needs root, and setpriv of util-linux")


@pytest.fixture(scope="module", params=[os.geteuid(), pytest.param(NOBODY, marks=needs_root)], ids=["own", "nobody"])
def node(request: pytest.FixtureRequest) -> Iterator[OwnNode]:
    with own_node(request.param, **UNCONFINED) as made:
        yield made


@pytest.fixture(scope="module")
def ordinary() -> Iterator[OwnNode]:
    with own_node(NOBODY, **UNCONFINED) as made:
        yield made


def environment_of(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text(errors="surrogateescape").replace("\0", "\n")


def test_no_process_of_a_node_has_its_secrets_in_its_environment(node: OwnNode) -> None:
    node.shell("true")
    for pid in [node.process.pid, *node.below()]:
        try:
            given = environment_of(pid) if os.geteuid() == 0 else ""
            words = Path(f"/proc/{pid}/cmdline").read_text()
        except (FileNotFoundError, ProcessLookupError):
            assert pid != node.process.pid, "the node has ended"
            continue  # an attempt's process has ended since it was listed
        assert [secret for secret in SECRETS if secret in given or secret in words] == [], pid


def test_a_node_that_started_anew_is_the_same_process_with_the_same_words(node: OwnNode) -> None:
    assert (node.folder / "data/lock").read_text().strip() == str(node.process.pid)
    words = Path(f"/proc/{node.process.pid}/cmdline").read_text().split("\0")[:-1]
    assert words == [sys.executable, "-W", "ignore", "-m", "node.cli.entry", "node", "--log-format", "json"]
    assert "is not a setting" not in node.log
    if os.geteuid() == 0:
        fds = Path(f"/proc/{node.process.pid}/fd")
        links = {name.name: os.readlink(name) for name in fds.iterdir()}  # noqa: PTH115  as text
        assert links["0"].startswith("pipe:")
        assert not [link for link in links.values() if "memfd" in link], "what was handed over is closed"
        assert HANDED in environment_of(node.process.pid)
    limits = Path(f"/proc/{node.process.pid}/limits").read_text()
    assert re.search(r"Max core file size +0 ", limits)


def test_the_handed_over_secrets_are_in_force(node: OwnNode) -> None:
    assert node.client.get("/v1/cluster")["node"] == "node-1"
    for token, code in ((OWN["ROTA_READ_TOKEN"], 200), ("wrong", 401)):
        status = subprocess.run(
            [sys.executable, "-m", "node.cli.entry", "members"],
            env={"ROTA_URL": address(node), "ROTA_TOKEN": token, "PATH": os.environ["PATH"], "HOME": str(node.folder)},
            capture_output=True,
            check=False,
        )
        assert status.returncode == {200: 0, 401: 2}[code], status


def address(node: OwnNode) -> str:
    return f"http://127.0.0.1:{node.client.get('/v1/members')['items'][0]['url'].rpartition(':')[2]}"


def test_a_command_inherits_no_variable_that_tasks_may_refer_to(node: OwnNode) -> None:
    seen = node.shell(ALL_ENVIRONMENTS)
    assert "PLAIN=is-inherited" in seen
    assert [secret for secret in SECRETS if secret in seen] == []
    assert not re.search(f"^({'|'.join(ALLOWED)})=", seen, re.MULTILINE)
    # As root, a command sees the node's own settings; no secret is among them.
    assert (str(node.folder / "data") in re.findall("^ROTA_DATA=(.*)$", seen, re.MULTILINE)) == (
        node.folder.stat().st_uid == 0
    )


def test_a_command_is_given_the_variable_that_it_refers_to_and_no_other(node: OwnNode) -> None:
    script = f'test "$KEY" = {ALLOWED["API_KEY"][::-1]} || echo length ${{#KEY}}; {ALL_ENVIRONMENTS}'
    seen = node.shell(script, KEY={"env": "API_KEY"})
    assert f"length {len(ALLOWED['API_KEY'])}" in seen
    assert [secret for secret in SECRETS if secret in seen] == []
    assert not re.search("^OTHER_KEY=", seen, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("UNSET_KEY", "variable 'UNSET_KEY' is not set on this member"),
        ("PLAIN", "variable 'PLAIN' is not listed in ROTA_ENV_ALLOW on this member"),
        ("ROTA_TOKEN", "variable 'ROTA_TOKEN': ROTA_* variables belong to the node and are never handed to a task"),
        (HANDED, f"variable '{HANDED}': ROTA_* variables belong to the node and are never handed to a task"),
    ],
)
def test_other_variables_are_refused(node: OwnNode, name: str, why: str) -> None:
    run, _ = node.run({"argv": ["true"], "env": {"KEY": {"env": name}}})
    assert (run["state"], run["error"], run["attempt"]) == ("failed", f"MissingSecret: {why}", 1)


LOOKS = """
import os
pid, names = os.getppid(), []
while pid > 1:
    parent = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    line = [" ".join(open(f"/proc/{pid}/cmdline").read().replace("\\0", " ").split())[-50:]]
    for what in ("environ", "mem", "maps", "fd", "fd/0", "cwd", "root", "exe", "auxv"):
        try:
            place = f"/proc/{pid}/{what}"
            looks = os.listdir if what == "fd" else os.readlink if what in ("cwd", "root", "exe") else open
            looks(place)
            line.append(what)
        except OSError:
            line.append("-")
    print(*line, flush=True)
    pid = parent
"""


@needs_root
def test_an_ordinary_users_command_reads_nothing_of_node_nursery_and_supervisor(ordinary: OwnNode) -> None:
    seen = ordinary.shell(f"{sys.executable} -c '{LOOKS}'").splitlines()
    shut = " ".join("-" * 9)
    # The shell, its worker, the supervisor, the nursery, the node.
    assert len(seen) >= 5, seen
    worker, supervisor, nursery, node = seen[1:5]
    assert worker.endswith("environ mem maps fd fd/0 cwd root exe auxv"), worker
    for line in (supervisor, nursery):
        assert "node.execution.nursery" in line
        assert line.endswith(shut), line
    assert "node --log-format json" in node
    assert node.endswith(shut)


@needs_root
def test_an_ordinary_users_command_cannot_trace_node_nursery_or_supervisor(ordinary: OwnNode) -> None:
    script = (
        "import ctypes, os, signal\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "pid, found = os.getppid(), []\n"
        "for _ in range(5):\n"
        "    done = libc.ptrace(0x4206, pid, 0, 0)\n"  # PTRACE_SEIZE
        "    buffer = (ctypes.c_char * 8)()\n"
        "    fd = libc.syscall(438, os.pidfd_open(pid), 0, 0)\n"  # pidfd_getfd
        "    found.append((done, fd >= 0))\n"
        "    pid = int(open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[1])\n"
        "print(found)\n"
    )
    seen = ordinary.shell(f'{sys.executable} -c "{script}"')
    assert seen.strip().endswith("(-1, False), (-1, False), (-1, False)]"), seen


CLEARS = "import sys; from pathlib import Path; from node.execution.leftovers import kill_leftovers as k; "
CLEARS += "print(k(Path(sys.argv[1])))"


@needs_root
@pytest.mark.parametrize("more", [(), ("--hidden",)], ids=["", "hidepid"])
def test_an_ordinary_user_finds_what_an_earlier_node_left_though_it_cannot_be_read(more: tuple[str, ...]) -> None:
    """Node and nursery were killed, and a supervisor hangs: its record tells who it is."""
    with folder_of(NOBODY) as folder:
        rights = as_nobody(hidepid=bool(more))
        script = str(ROOT / "testkit/execution/node_for_tests.py")
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        with (folder / "log").open("wb") as log:
            node = subprocess.Popen([*rights, sys.executable, script, str(folder), "60"], env=env, stdout=log)
        try:
            wait_for("the work has begun", lambda: written(pids_path(folder, "task~1")), 20)
            family = pids(pids_path(folder, "task~1"))
            worker = process_tree.process(family[-1])
            assert worker is not None
            supervisor, nursery = worker.parent, int((folder / "log").read_text().split()[1])
            record = json.loads(record_path(folder, supervisor).read_text())
            assert (record["worker"], record["worker_started"]) == (worker.pid, worker.started)
            for pid in (nursery, supervisor):
                os.kill(pid, signal.SIGSTOP)
            for pid in (nursery, node.pid):
                os.kill(pid, signal.SIGKILL)
            node.wait()
            wait_for("the nursery is gone", lambda: states([nursery]) == "", 20)
            wait_for("the supervisor stands still", lambda: states([supervisor]) == "T", 20)
            done = subprocess.run(
                [*rights, sys.executable, "-c", CLEARS, str(folder)],
                env=env,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert int(done.stdout) >= 4
            assert states(family[:4]) == ""
            assert (states([supervisor]) == "") == (not more), (
                "/proc with hidepid does not show it; it has no work left"
            )
        finally:
            node.kill()
            node.wait()
            kill_leftovers(folder)
            for pid in (supervisor, family[4]):
                process_tree.send(pid, signal.SIGKILL)


def test_a_run_cannot_commit_a_checkpoint_for_another(node: OwnNode) -> None:
    """A command found the other's socket, to which it has the rights, and called it."""
    place, gate = node.folder / f"place-{node.process.pid}", node.folder / f"gate-{node.process.pid}"
    script = f"echo $ROTA_CTX_SOCKET > {place}; until [ -e {gate} ]; do sleep 0.02; done; rota ctx checkpoint --show"
    victim = node.begin({"argv": ["sh", "-c", script]})
    wait_for("the other runs", lambda: place.exists() and place.read_text().endswith("\n"), 20)
    try:
        told = place.read_text().strip()
        stdin = f"echo 1 | ROTA_CTX_SOCKET={told}"
        for call in ("rota ctx checkpoint -", "setsid rota ctx checkpoint -", "sh -c 'rota ctx result rows=1'"):
            seen = node.shell(f"{stdin} {call} 2>&1; echo code $?; echo 2 | rota ctx checkpoint - && echo own ok")
            assert "refused: the caller is not a process of this attempt" in seen
            assert "code 1\nown ok\n" in seen
    finally:
        gate.touch()
    run, log = node.ended(victim)
    assert (run["state"], run["checkpoint"], run["result"]) == ("succeeded", None, {"exit_code": 0})
    assert log.count("rota ctx: refused a call by process") == 3


LATER = "sleep 0.05; rota ctx result $NAME=1; touch $NAME"
"""In a process whose parent has ended by then."""

WAYS = {
    "plain": f"sh -c '({LATER}) & true'",
    "session": "sh -c 'setsid sh -c \"$LATER\" &'",
    "daemon": "setsid sh -c 'setsid sh -c \"$LATER\" & true'",
    "bare": "sh -c 'env -i NAME=$NAME PATH=$PATH ROTA_CTX_SOCKET=$ROTA_CTX_SOCKET sh -c \"$LATER\" & true'",
}


@pytest.mark.parametrize("way", WAYS)
def test_what_an_attempt_has_started_may_call_however_far_it_went(node: OwnNode, way: str) -> None:
    script = f"""
        (echo 1 | rota ctx checkpoint -) || exit 1
        (sleep 0.05; rota ctx result background=1) & wait $! || exit 2
        {WAYS[way]}
        until [ -e $NAME ]; do sleep 0.02; done
    """
    run, log = node.run({"argv": ["sh", "-c", script], "env": {"NAME": way, "LATER": LATER}})
    assert run["state"] == "succeeded", (run["error"], log)
    assert (run["result"], run["checkpoint"]) == ({"background": 1, way: 1, "exit_code": 0}, 1), log


def test_a_node_stops_in_good_order_after_its_new_start() -> None:
    with own_node(os.geteuid()) as node:
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(20) == 0


def test_secrets_in_files_need_no_new_start(tmp_path: Path) -> None:
    files = {}
    for name, value in OWN.items():
        (tmp_path / name).write_text(value)
        files[f"{name}_FILE"] = str(tmp_path / name)
    with own_node(os.geteuid(), **files, **dict.fromkeys(OWN, ""), ROTA_ENV_ALLOW="", API_KEY="", OTHER_KEY="") as node:
        if os.geteuid() == 0:
            assert HANDED not in environment_of(node.process.pid)


def test_nodes_of_rota_up_are_started_without_secrets_in_their_environment(tmp_path: Path) -> None:
    with LocalCluster(
        tmp_path, 1, env={**ALLOWED, "ROTA_TOKEN": OWN["ROTA_TOKEN"], "ROTA_ENV_ALLOW": "API_KEY"}
    ) as made:
        made.start()
        made.wait_until_ready()
        assert made.client.get("/v1/cluster")["node"] == "node-1"
        if os.geteuid() == 0:
            seen = environment_of(made.pid("node-1"))
            assert (OWN["ROTA_TOKEN"] in seen, ALLOWED["API_KEY"] in seen) == (False, False)
            assert ALLOWED["OTHER_KEY"] in seen, "it is not listed: it is an ordinary variable"


@pytest.mark.parametrize("given", ["", "x", "0", "1", "999999", "-1"])
def test_only_rota_hands_something_over(given: str, tmp_path: Path) -> None:
    env = {**os.environ, HANDED: given, "ROTA_DATA": str(tmp_path)}
    for more in ({}, OWN):
        done = subprocess.run(
            [sys.executable, "-m", "node.cli.entry", "node"],
            env=env | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (1, 2)
        assert f"{HANDED}={given} is set in the environment, and nothing was handed over there" in done.stderr
        assert "Traceback" not in done.stderr
        assert not [secret for secret in SECRETS if secret in done.stderr]
