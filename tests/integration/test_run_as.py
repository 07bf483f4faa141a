"""Attempts as other users, on a real node as root: who they are, what they reach, and how they end."""

import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from node.execution import process_tree
from node.execution.account import CAPABILITIES
from node.execution.shared_objects import remove_shared
from tasks import landlock
from testkit.cluster_kinds import leave_shared
from testkit.reachable import ReachableCluster, open_folder, reachable, why_not

pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(why_not()), reason=why_not())]

DAEMON, GAMES, NOBODY = 1, 5, 65534
FIRST_UID = 2_000_000_000
UIDS = f"{FIRST_UID}-{FIRST_UID + 99}"
NODE = "node-1"
STAYS = "sleep 600 & setsid sleep 600 & env -i /bin/sleep 600 & wait"
WHO = 'id -u; id -g; id -G; echo "$HOME $USER $LOGNAME $SHELL"; pwd; umask; echo again > /dev/stderr'


class Users(ReachableCluster):
    """Nodes with attempts of other users, and verbs."""

    rights: tuple[str, ...] = ()

    def command(self, name: str) -> list[str]:
        """The command line of a node's process, with these rights."""
        words, command = reachable(), super().command(name)
        return [*words, *self.rights, *command[len(words) :]]

    def sh(self, name: str, script: str, **spec: Any) -> Any:
        """The run of a shell's script, once it has ended."""
        return self.ended(name, "command", {"argv": ["sh", "-c", script]}, **spec)

    def ended(self, name: str, kind: str, params: dict[str, Any], deadline_s: float = 30, **spec: Any) -> Any:
        """The run of a task with these params, once it has ended."""
        self.register(name, kind, params=params, retry={"attempts": 1}, **spec)
        return self.wait_for_run(self.run(name), deadline_s=deadline_s)

    def cancel(self, run_id: str) -> None:
        """Cancel a run, and wait until it has ended."""
        assert self.ask("DELETE", f"/v1/runs/{run_id}").status == 202
        self.wait_for_run(run_id)

    def log(self, run: Any) -> str:
        """What an attempt has said."""
        return Path(self.folder, NODE, "logs", run["run_id"], f"{run['attempt']}.log").read_text()


@contextmanager
def one_node(**env: str) -> Iterator[Users]:
    """One node that runs commands, also as two other users, and as numbers."""
    with open_folder() as folder:
        given = {"ROTA_RUN_AS": "nobody,daemon", "ROTA_WORK_UIDS": UIDS, "ROTA_MAX_RUNS": "8"}
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
    wait_for("the scratch folder is removed", lambda: not Path(said[4]).exists())


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
    users.wait_for_attempt(run, 2)
    users.cancel(run)
    wait_for("the work has ended", lambda: not sleeping(NOBODY))


def test_work_whose_supervisor_and_nursery_were_killed_is_ended_at_the_next_start(users: Users) -> None:
    users.register("left", "command", params={"argv": ["sh", "-c", "exec sleep 600"]}, run_as="daemon")
    run = users.run("left")
    users.wait_for_run(run, "running")
    [sleeper] = wait_for("it sleeps", lambda: sleeping(DAEMON) or None)
    supervisor = parent_of(parent_of(sleeper))
    nursery = parent_of(supervisor)
    assert parent_of(nursery) == users.pid(NODE)
    # All are stopped first, so that none can clean up before it is killed.
    for pid in (users.pid(NODE), nursery, supervisor):
        os.kill(pid, signal.SIGSTOP)
    for pid in (supervisor, users.pid(NODE)):
        os.kill(pid, signal.SIGKILL)
    users.kill(NODE)
    wait_for("the nursery has ended", lambda: process_tree.process(nursery) is None)
    assert sleeping(DAEMON) == [sleeper], "a shell that its worker has left"
    users.restart(NODE)
    assert sleeper not in sleeping(DAEMON)
    users.wait_for_attempt(run, 2)
    users.cancel(run)
    wait_for("the work has ended", lambda: not sleeping(DAEMON))


def test_a_kind_without_paths_gets_a_number_of_its_own(users: Users) -> None:
    run = users.ended("numbered", "numbered", {})
    assert run["state"] == "succeeded", (run, users.log(run))
    assert run["result"]["uids"] == [FIRST_UID] * 3
    assert run["result"]["groups"] == []
    assert run["result"]["home"] == str(users.folder / NODE / "scratch" / f"{run['run_id']}.{run['token']}")


def shared_of(uid: int) -> list[str]:
    """Which shared objects a user has, by their kinds."""
    found = []
    for kind in ("shm", "sem", "msg"):
        head, *rows = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
        found += [kind for row in rows if row.split()[head.split().index("cuid")] == str(uid)]
    return found + [each.name for each in Path("/dev/shm").iterdir() if each.lstat().st_uid == uid]


@pytest.mark.skipif(not Path("/proc/sysvipc/sem").exists(), reason="this kernel has no System V objects")
def test_what_an_attempt_with_a_number_of_its_own_leaves_in_shared_memory_is_removed(users: Users) -> None:
    run = users.ended("leaves", "numbered", {"leaves": True})
    assert run["state"] == "succeeded", (run, users.log(run))
    wait_for("its objects are gone", lambda: not shared_of(FIRST_UID))


@pytest.mark.skipif(not Path("/proc/sysvipc/sem").exists(), reason="this kernel has no System V objects")
def test_shared_objects_are_removed_of_these_users_and_of_no_other() -> None:
    uids = range(FIRST_UID + 200, FIRST_UID + 203)
    for uid in uids:
        pid = os.fork()
        if pid == 0:
            try:
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                leave_shared()
                Path(f"/dev/shm/rota-test-{uid}").touch()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
    there = [shared_of(uid) for uid in uids]
    assert there == [["shm", "sem", "msg", f"rota-test-{uid}"] for uid in uids]
    try:
        remove_shared(uids[:2])
        assert [shared_of(uid) for uid in uids] == [[], [], there[2]]
    finally:
        remove_shared(uids)
    assert not any(map(shared_of, uids))


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


@pytest.mark.more
def test_a_scratch_folder_is_removed_whatever_is_in_it(users: Users) -> None:
    """Folders that their owner closed, links out of it, a socket, a pipe, and names that are no text."""
    outside = users.folder / "outside"
    outside.mkdir(mode=0o755)
    (outside / "kept").touch()
    script = f"""
        (for i in $(seq 1500); do mkdir d && cd -P d; done)
        mkdir -p shut/in/it $(printf 'a\\377b') && touch shut/in/it/file && mkfifo pipe && ln -s {outside} out
        ln -s / root && chmod 0 shut/in shut && chmod 0 . && pwd
    """
    run = users.sh("shuts", script, run_as="nobody")
    assert run["state"] == "succeeded", users.log(run)
    wait_for("the scratch folder is removed", lambda: not Path(users.log(run).strip()).exists())
    assert (outside / "kept").exists()


def test_destinations_are_made_with_the_users_rights_only(users: Users) -> None:
    mine, roots, source = (users.folder / name for name in ("mine", "roots", "source"))
    for each in (mine, roots, source):
        each.mkdir(mode=0o755)
    os.chown(mine, NOBODY, NOBODY)
    (source / "file").write_text("alpha")
    (mine / "trap").symlink_to(roots)
    params = {"source": {"type": "folder", "path": str(source), "shared": True}}

    def backup(name: str, to: Path) -> Any:
        return users.ended(name, "backup", {**params, "destination": f"file://{to}"}, run_as="nobody")

    assert backup("to-mine", mine / "deep" / "er")["state"] == "succeeded"
    made = [mine / "deep", mine / "deep/er", *(mine / "deep/er").rglob("*")]
    assert {each.stat().st_uid for each in made} == {NOBODY}
    for name, to in (("to-roots", roots / "x"), ("through-a-link", mine / "trap" / "x")):
        run = backup(name, to)
        assert (run["state"], list(roots.iterdir())) == ("failed", []), run
        assert "Permission denied" in run["error"]
    (source / "private").write_text("root's")
    (source / "private").chmod(0o600)
    run = backup("from-roots", mine / "other")
    assert run["state"] == "failed"
    assert f"this user cannot read {source}/private. Nothing was written" in run["error"]


def test_a_closed_folder_above_is_named() -> None:
    with one_node() as users:
        users.folder.chmod(0o700)
        run = users.sh("shut-out", "true", run_as="nobody")
        assert (run["state"], run["attempt"]) == ("failed", 1)
        assert f"nobody cannot enter the folder {users.folder}, and so cannot reach" in run["error"]


def test_an_ordinary_user_with_the_capabilities_runs_attempts_as_others() -> None:
    """As the drop-in for systemd has it: the node is no root, and its attempts keep none of its capabilities."""
    with open_folder() as folder:
        users = Users(folder, 1, {"ROTA_RUN_AS": "daemon,nobody", "ROTA_WORK_UIDS": UIDS, "ROTA_MAX_RUNS": "8"})
        caps = ",".join(f"+{name.lower()}" for name in (*CAPABILITIES, "SYS_PTRACE"))
        given = (f"--inh-caps=-all,{caps}", f"--ambient-caps=-all,{caps}", f"--bounding-set=-all,{caps}")
        users.rights = ("setpriv", f"--reuid={GAMES}", f"--regid={GAMES}", "--clear-groups", *given, "--no-new-privs")
        for each in (folder, *folder.rglob("*")):
            os.chown(each, GAMES, GAMES)
        with users:
            users.start()
            users.wait_until_whole()
            for uid, user in ((GAMES, None), (DAEMON, "daemon")):
                run = users.sh(f"who-{user}", "id -u; grep -h Cap[EPI] /proc/self/status", run_as=user)
                said = users.log(run).split()
                assert (said[0], {int(each, 16) for each in said[2::2]}) == (str(uid), {0}), said
            assert users.ended("numbered", "numbered", {"leaves": True})["result"]["uids"] == [FIRST_UID] * 3
            wait_for("its shared objects are gone", lambda: not shared_of(FIRST_UID))
            users.register("stays", "command", params={"argv": ["sh", "-c", STAYS]}, run_as="daemon")
            users.wait_for_run(users.run("stays"), "running")
            wait_for("three sleep", lambda: len(sleeping(DAEMON)) == 3)
            users.kill(NODE)
            wait_for("the work has ended", lambda: not sleeping(DAEMON))


@pytest.mark.parametrize("setting", [{"ROTA_RUN_AS": "nobody"}, {"ROTA_WORK_UIDS": "2000000000-2000000999"}])
def test_a_node_that_cannot_become_others_does_not_start(setting: dict[str, str]) -> None:
    with open_folder() as folder, Users(folder, 1, setting) as users:
        users.rights = ("setpriv", f"--reuid={GAMES}", f"--regid={GAMES}", "--clear-groups", "--bounding-set=-all")
        for each in (folder, *folder.rglob("*")):
            os.chown(each, GAMES, GAMES)
        users.start()
        wait_for("the node has ended", lambda: users.exit_code(NODE) is not None)
        assert "lacks CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_KILL, CAP_SETGID, CAP_SETUID" in users.said(NODE)


def test_numbers_that_somebody_has_are_refused() -> None:
    with open_folder() as folder, Users(folder, 1, {"ROTA_WORK_UIDS": "65000-66000"}) as users:
        users.start()
        wait_for("the node has ended", lambda: users.exit_code(NODE) is not None)
        assert "65534 is the user nobody, whose processes would be killed" in users.said(NODE)


def test_what_has_a_number_of_the_node_is_ended_at_its_start() -> None:
    """Whatever it did: here nothing says whose it was."""
    as_number = ("setpriv", f"--reuid={FIRST_UID + 7}", f"--regid={FIRST_UID + 7}", "--clear-groups")
    left = subprocess.Popen([*as_number, "sleep", "600"], env={}, start_new_session=True)
    try:
        wait_for("it sleeps", lambda: sleeping(FIRST_UID + 7) == [left.pid])
        with one_node() as users:
            assert left.poll() == -signal.SIGKILL
            assert "killed 1 processes" in users.said(NODE)
    finally:
        left.kill()
        left.wait()


@pytest.mark.skipif(landlock.abi() < 6, reason="this kernel's Landlock has no scopes for signals")
def test_attempts_of_one_user_do_not_reach_one_another(users: Users) -> None:
    script = "echo TOPSECRET > kept; echo $$ > /proc/self/fd/1; exec sleep 600"
    users.register("first", "command", params={"argv": ["sh", "-c", script]}, run_as="nobody")
    first = users.wait_for_attempt(users.run("first"), 1)
    kept = users.folder / NODE / "scratch" / f"{first['run_id']}.{first['token']}" / "kept"
    [sleeper] = wait_for("it sleeps", lambda: sleeping(NOBODY) or None)
    assert kept.stat().st_uid == NOBODY
    worker, fds = parent_of(sleeper), f"/proc/{sleeper}/fd"
    reads = [kept, f"/proc/{sleeper}/cwd/kept", f"/proc/{sleeper}/environ", f"/proc/{worker}/environ"]
    tries = [*(f"cat {each}" for each in reads), f"ls {kept.parent}", f"ls -l {fds}/1", f"echo x > {kept.parent}/x"]
    tries += [f"kill -0 {each}" for each in (sleeper, worker)]
    lines = [f"({each}) && echo GOT {number}" for number, each in enumerate(tries)]
    run = users.sh("second", "\n".join((*lines, "echo DONE")), run_as="nobody")
    users.cancel(first["run_id"])
    assert "GOT" not in users.log(run)
    assert "DONE" in users.log(run)
    wait_for("it has ended", lambda: not sleeping(NOBODY))


def test_attempts_at_once_have_numbers_of_their_own(users: Users) -> None:
    users.register("at-once", "numbered", params={"sleep_s": 60}, overlap="allow")
    runs = [users.run("at-once") for _ in range(3)]
    for run in runs:
        users.wait_for_attempt(run, 1)
    data = users.folder / NODE / "scratch"
    found = {next(data.glob(f"{run}.*")).stat().st_uid for run in runs}
    assert found == {FIRST_UID, FIRST_UID + 1, FIRST_UID + 2}
    for run in runs:
        users.cancel(run)
    wait_for("the folders are removed", lambda: not [each for run in runs for each in data.glob(f"{run}.*")])
    # A number is free once nothing of its attempt is left.
    wait_for("the first is free", lambda: users.ended("again", "numbered", {})["result"]["uids"] == [FIRST_UID] * 3)


@pytest.mark.parametrize("confined", ["1", "0"])
def test_root_is_a_user_that_must_be_named(confined: str) -> None:
    with one_node(ROTA_RUN_AS="root", ROTA_COMMAND_CONFINED=confined) as users:
        run = users.sh("as-root", "id -u; grep -E 'CapEff|NoNewPrivs' /proc/self/status", run_as="root")
        uid, _, capabilities, _, no_more = users.log(run).split()
        assert uid == "0"
        assert (int(capabilities, 16) == 0, no_more) == ((True, "1") if confined == "1" else (False, "0"))


def test_a_secret_that_the_user_may_not_read_is_answered_where_the_params_name_it(users: Users) -> None:
    secret = users.secrets_dir / "for_the_job"
    secret.write_text("hunter-two-hunter")
    secret.chmod(0o600)
    params = {
        "argv": ["sh", "-c", f'[ "$PASS" = hunter-two-hunter ] && echo "$PASS" && ! cat {secret}'],
        "env": {"PASS": {"secret": "for_the_job"}},
    }
    run = users.ended("with-a-secret", "command", params, run_as="nobody")
    assert run["state"] == "succeeded", users.log(run)
    assert users.log(run).splitlines()[0] == "[secret]"
