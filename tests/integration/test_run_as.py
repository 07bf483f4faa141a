"""Attempts as other users, on a real node as root: who they are, what they reach, and how they end."""

import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from node.execution import process_tree
from testkit.reachable import ReachableCluster, open_folder, why_not

pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(why_not()), reason=why_not())]

DAEMON, NOBODY = 1, 65534
NODE = "node-1"
STAYS = "sleep 600 & setsid sleep 600 & env -i /bin/sleep 600 & wait"
WHO = 'id -u; id -g; id -G; echo "$HOME $USER $LOGNAME $SHELL"; pwd; umask; echo again > /dev/stderr'


class Users(ReachableCluster):
    """Nodes with attempts of other users, and verbs."""

    def sh(self, name: str, script: str, **spec: Any) -> Any:
        """The run of a shell's script, once it has ended."""
        return self.ended(name, "command", {"argv": ["sh", "-c", script]}, **spec)

    def ended(self, name: str, kind: str, params: dict[str, Any], deadline_s: float = 30, **spec: Any) -> Any:
        """The run of a task with these params, once it has ended."""
        self.register(name, kind, params=params, retry={"attempts": 1}, **spec)
        return self.wait_for_run(self.run(name), deadline_s=deadline_s)

    def log(self, run: Any) -> str:
        """What an attempt has said."""
        return Path(self.folder, NODE, "logs", run["run_id"], f"{run['attempt']}.log").read_text()


@contextmanager
def one_node(**env: str) -> Iterator[Users]:
    """One node that runs commands, also as two other users, and as numbers."""
    with open_folder() as folder:
        given = {"ROTA_RUN_AS": "nobody,daemon", "ROTA_WORK_UIDS": "2000000000-2000000099", "ROTA_MAX_RUNS": "8"}
        with Users(folder, 1, given | env) as made:
            made.start()
            made.wait_until_whole()
            yield made


@pytest.fixture(scope="module")
def users() -> Iterator[Users]:
    """The same for the tests that change nothing."""
    with one_node() as made:
        yield made


def sleeping(uid: int) -> list[int]:
    """The processes of a user that sleep."""
    return [
        one.pid
        for one in process_tree.processes()
        if one.state not in "ZX" and uid in process_tree.uids(one.pid) and name_of(one.pid) == "sleep"
    ]


def name_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def parent_of(pid: int) -> int:
    found = process_tree.process(pid)
    assert found is not None
    return found.parent


@pytest.mark.parametrize(("user", "uid", "home"), [("nobody", NOBODY, "/nonexistent"), ("daemon", DAEMON, "/usr/sbin")])
def test_a_command_is_its_user(users: Users, user: str, uid: int, home: str) -> None:
    run = users.sh(f"who-{user}", WHO, run_as=user)
    assert run["state"] == "succeeded", run
    said = users.log(run).splitlines()
    groups = " ".join(map(str, os.getgrouplist(user, uid)))
    assert said[:4] == [str(uid), str(uid), groups, f"{home} {user} {user} /bin/sh"]
    assert said[4] == str(users.folder / NODE / "scratch" / f"{run['run_id']}.{run['token']}")
    assert said[5:] == ["0022", "again"]
    assert not Path(said[4]).exists()


def test_a_command_without_a_user_is_the_nodes(users: Users) -> None:
    assert users.log(users.sh("who", "id -u")) == "0\n"


def test_what_is_the_nodes_and_roots_stays_closed(users: Users) -> None:
    tries_all(users)


def test_it_stays_closed_by_the_users_rights_alone() -> None:
    """Without Landlock: so that it holds on an old kernel."""
    with one_node(ROTA_COMMAND_CONFINED="0") as users:
        tries_all(users)


def tries_all(users: Users) -> None:
    node = users.folder / NODE
    (users.secrets_dir / "of_another").write_text("TOPSECRET")
    (users.secrets_dir / "of_another").chmod(0o600)
    files = [
        users.secrets_dir / "of_another",
        users.folder / "secret",
        "/etc/shadow",
        node / "lock",
        node / "node.json",
    ]
    folders = [node, node / "raft", node / "logs", node / "scratch", node / "groups"]
    reads = [f"cat {each}" for each in files] + [f"ls {each}" for each in folders]
    pid, supervisor = users.pid(NODE), '"$(cut -d" " -f4 /proc/$PPID/stat)"'
    signals = [f"kill -0 {pid}", f"kill -0 {supervisor}"]
    others = [f"cat /proc/{pid}/environ", f"touch {node}/x", f"touch {node}/scratch/x", "setpriv --reuid=0 id"]
    tries = [*reads, *signals, *others]
    lines = [f"({each}) && echo GOT {number}" for number, each in enumerate(tries)]
    run = users.sh("tries", "\n".join((*lines, "cat /proc/$PPID/stat >/dev/null && echo DONE")), run_as="nobody")
    assert run["state"] == "succeeded", run
    assert "GOT" not in users.log(run)
    assert "DONE" in users.log(run)


def test_the_ctx_socket_is_the_users(users: Users) -> None:
    run = users.sh(
        "tells",
        'stat -c "%u %a" .rota .rota/ctx && rota ctx progress 1 2 && echo \'{"at": 7}\' | rota ctx checkpoint - &&'
        " echo '{\"rows\": 3}' | rota ctx result -",
        run_as="nobody",
    )
    assert run["state"] == "succeeded", users.log(run)
    assert users.log(run).splitlines()[:2] == [f"{NOBODY} 700", f"{NOBODY} 600"]
    assert (run["result"], run["checkpoint"]) == ({"rows": 3, "exit_code": 0}, {"at": 7})


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ("games", "run_as: games: node-1 runs no task as this user: ROTA_RUN_AS there names nobody, daemon; add games"),
        ("root", "run_as: root: node-1 runs no task as this user"),
        ("no-such-user", "run_as: no-such-user: node-1 runs no task as this user"),
    ],
)
def test_a_user_that_the_member_does_not_name_is_refused_at_once(users: Users, user: str, why: str) -> None:
    told = users.register(f"as-{user}", "command", params={"argv": ["true"]}, run_as=user)
    assert any(sentence.startswith(why) for sentence in told["warnings"]), told
    run = users.wait_for_run(users.run(f"as-{user}"))
    assert (run["state"], run["attempt"]) == ("failed", 1), "a retry would meet the same"
    assert run["error"].startswith(why)


def test_frozen_work_of_another_user_thaws_and_ends_with_its_node(users: Users) -> None:
    """Also what has left the attempt's session, and has cleared its environment."""
    users.register("stays", "command", params={"argv": ["sh", "-c", STAYS]}, run_as="nobody")
    run = users.run("stays")
    users.wait_for_run(run, "running")
    family = wait_for("three sleep", lambda: found if len(found := sleeping(NOBODY)) == 3 else None)
    users.pause(NODE)
    wait_for("the work is frozen", lambda: states(family) == "TTT")
    users.resume(NODE)
    wait_for("the work goes on", lambda: states(family) == "SSS")
    users.kill(NODE)
    wait_for("the work has ended", lambda: not sleeping(NOBODY))
    users.restart(NODE)
    users.wait_for_run(run, "running", "abandoned")
    users.ask("DELETE", f"/v1/runs/{run}")
    wait_for("the work has ended", lambda: not sleeping(NOBODY))


def test_work_whose_supervisor_and_nursery_were_killed_is_ended_at_the_next_start(users: Users) -> None:
    users.register("left", "command", params={"argv": ["sh", "-c", "exec sleep 600"]}, run_as="daemon")
    run = users.run("left")
    users.wait_for_run(run, "running")
    [sleeper] = wait_for("it sleeps", lambda: sleeping(DAEMON) or None)
    supervisor = parent_of(parent_of(sleeper))
    nursery = parent_of(supervisor)
    assert parent_of(nursery) == users.pid(NODE)
    for pid in (nursery, supervisor):
        os.kill(pid, signal.SIGSTOP)
    for pid in (supervisor, users.pid(NODE)):
        os.kill(pid, signal.SIGKILL)
    users.kill(NODE)
    wait_for("the nursery has ended", lambda: process_tree.process(nursery) is None)
    assert sleeping(DAEMON) == [sleeper], "a shell that its worker has left"
    users.restart(NODE)
    assert sleeper not in sleeping(DAEMON)
    users.ask("DELETE", f"/v1/runs/{run}")


def test_a_kind_without_paths_gets_a_number_of_its_own(users: Users) -> None:
    run = users.ended("numbered", "numbered", {})
    assert run["state"] == "succeeded", (run, users.log(run))
    assert run["result"]["uids"] == [2000000000] * 3
    assert run["result"]["groups"] == []
    assert run["result"]["home"] == str(users.folder / NODE / "scratch" / f"{run['run_id']}.{run['token']}")


def states(pids: list[int]) -> str:
    found = (process_tree.process(pid) for pid in pids)
    return "".join(one.state for one in found if one is not None)


def test_the_data_folder_lets_others_pass_and_nothing_more(users: Users) -> None:
    data = users.folder / NODE
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in data.iterdir()}
    assert stat.S_IMODE(data.stat().st_mode) == 0o711
    assert modes.pop("scratch", 0o711) == 0o711
    assert not any(mode & 0o077 for mode in modes.values()), modes
    assert users.said(NODE).count("had mode") <= 1
