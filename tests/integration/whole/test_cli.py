"""The command line as a process: what it prints, and its exit codes 0, 1, 2 and 3."""

import json
import os
import re
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from subprocess import TimeoutExpired

import pytest

from node.cli.local import wait_for
from node.cli.ports import free_ports
from testkit.cluster import Cluster
from testkit.command import Rota, Running
from tests.integration.whole.conftest import TOKEN

pytestmark = pytest.mark.integration


TASKS = """\
name: from-yaml
kind: probe
schedule: {cron: "0 3 * * *", timezone: Europe/Paris}
params:
  says: hello from the command line
  steps: 2
---
- name: once
  kind: probe
  schedule: {at: 2030-12-01T00:00:00Z}
- {name: failing, kind: probe, params: {fail_attempts: 9}, retry: {attempts: 1}}
"""


def test_tasks_are_applied_tried_first_and_looked_at(rota: Rota, cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "tasks.yaml"
    file.write_text(TASKS)
    tried = rota("apply", "-f", str(file), "--dry-run")
    assert (tried.code, tried.out.splitlines()[0]) == (0, "from-yaml: would be created (version 1)")
    assert cluster.ask("GET", "/v1/tasks/from-yaml").status == 404
    assert [item["change"] for item in rota("apply", "-f", "-", "--json", stdin=TASKS).json["items"]] == ["created"] * 3
    file.write_text(TASKS.replace("steps: 2", "steps: 3"))
    again = rota("apply", "-f", str(file))
    assert again.out.splitlines() == [
        "from-yaml: changed (version 2)",
        "once: unchanged (version 1)",
        "failing: unchanged (version 1)",
    ]
    listed = rota("tasks", "--kind", "probe")
    assert all(name in listed.out for name in ("from-yaml", "once", "failing"))
    assert {"from-yaml", "once", "failing"} <= {task["name"] for task in rota("tasks", "--json").json["items"]}
    assert rota("show", "from-yaml", "--json").json["params"]["steps"] == 3
    assert "Europe/Paris" in rota("show", "from-yaml").out
    owner = cluster.owner_of("from-yaml")
    assert rota("where", "from-yaml", "--json").json["owner"] == owner
    without = rota("where", "from-yaml", "--without", owner)
    assert f"owner without {owner}" in without.out
    assert f"{owner}: down" in without.out
    plan = rota("plan", "--without", owner, "--json").json
    assert "from-yaml" in {move["task"] for move in plan["moves"] if move["from"] == owner}
    assert "from-yaml" in rota("plan", "--without", owner).out


def test_what_show_prints_can_be_changed_and_applied(rota: Rota, tmp_path: Path) -> None:
    file = tmp_path / "shown.yaml"
    assert rota("apply", "-f", "-", stdin="{name: shown, kind: probe, params: {steps: 2}}").code == 0
    for words in (("show", "shown"), ("show", "shown", "--json")):
        file.write_text(rota(*words).out)
        assert "owner" in file.read_text(), "the state is shown, too"
        assert rota("apply", "-f", str(file)).out == "shown: unchanged (version 1)\n"
    file.write_text(rota("show", "shown").out.replace("steps: 2", "steps: 3").replace("pin: null", "pin: node-9"))
    tried = rota("apply", "-f", str(file), "--dry-run").out.splitlines()
    assert tried[0] == "shown: would be changed (version 2)"
    assert set(tried[1:3]) == {"  params.steps: 2 -> 3", '  pin: null -> "node-9"'}
    assert tried[3].startswith("  warning: pin: node-9 is not a member")


def test_backups_on_another_machine_are_not_reported_as_missing(rota: Rota, tmp_path: Path) -> None:
    source, made = tmp_path / "source", tmp_path / "made"
    source.mkdir()
    spec = {
        "name": "away",
        "kind": "backup",
        "params": {"source": {"type": "folder", "path": str(source), "shared": True}, "destination": made.as_uri()},
    }
    assert rota("apply", "-f", "-", stdin=json.dumps(spec)).code == 0
    run = rota("run", "away", "--wait", "--json").json
    assert run["result"]["url"] in rota("backup", "list", "away").out
    made.rename(tmp_path / "on another machine")
    for words in (("list", "away"), ("verify", "away"), ("restore", "away", str(tmp_path / "restored"))):
        said = rota("backup", *words)
        assert said.code == 1
        assert f"but {run['node']} has written {run['result']['url']}" in said.err


def test_tasks_are_run_watched_and_cancelled(rota: Rota, cluster: Cluster) -> None:
    notes = cluster.notes()
    cluster.register("ran", params={"says": "hello from the command line"})
    done = rota("run", "ran", "--wait", "--json").json
    assert done["state"] == "succeeded"
    assert "hello from the command line" in rota("log", done["run_id"]).out
    assert rota("log", done["run_id"], "--json").json == rota("log", done["run_id"]).out
    cluster.register("fails", params={"fail_attempts": 9}, retry={"attempts": 1})
    failed = rota("run", "fails", "--wait")
    assert (failed.code, "failed" in failed.out, "was told to fail" in failed.out) == (1, True, True)
    started = rota("run", "ran", "--param", f"notes={notes.file}", "--param", f"gate={notes.gate}")
    assert started.code == 0
    run_id = started.out.strip()
    notes.wait("beat")
    assert run_id in rota("runs", "ran", "--state", "running").out
    assert [run["run_id"] for run in rota("runs", "ran", "--json").json["items"]] == [run_id, done["run_id"]]
    refused = rota("run", "ran")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("rota: ")
    assert rota("cancel", run_id).code == 0
    assert cluster.wait_for_run(run_id)["state"] == "cancelled"
    assert rota("cancel", run_id).code == 1
    assert rota("pause", "ran").code == 0
    assert cluster.get("/v1/tasks/ran")["paused"] is True
    assert rota("resume", "ran", "--json").json["paused"] is False
    assert rota("delete", "ran").code == 0
    assert rota("delete", "ran").code == 1


def test_the_cluster_is_looked_at_and_changed(rota: Rota, cluster: Cluster) -> None:
    status = rota("status")
    assert (status.code, "quorum" in status.out) == (0, True)
    assert {member["id"] for member in rota("status", "--json").json["members"]} == set(cluster.names)
    members = rota("members")
    assert all(name in members.out for name in cluster.names)
    fed = rota("where", "bootstrap/node-3", "--json").json
    assert (fed["owner"], len(fed["preference"])) == (fed["preference"][0], 2)
    assert "node-3 lacks no finished runs" in rota("where", "bootstrap/node-3").out
    assert rota("where", "bootstrap/node-3", "--without", fed["owner"], "--json").json["owner"] == fed["preference"][1]
    assert all(f"bootstrap/{name}" in rota("bootstraps").out for name in cluster.names)
    assert "probe" in rota("kinds").out
    assert rota("settings", "history_days=12", "balance_slack=0.125", "--json").json["history_days"] == 12
    assert "0.125" in rota("settings").out
    assert rota("settings", "history_days=30", "balance_slack=0").code == 0
    assert rota("drain", "node-3").code == 0
    assert cluster.member("node-3", "node-1")["status"] == "draining"
    assert rota("undrain", "node-3").code == 0
    assert cluster.wait_for_status("node-3", "up")
    taken = rota("join", cluster.url("node-2"), "--id", "node-1", "--at", "127.0.0.1:7000:8000")
    assert (taken.code, "node-1" in taken.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["show", "nobody"], 1, "there is no task 'nobody'"),
        (["show", "caf\udce9"], 1, "this is not a valid task name"),
        (["log", "nobody"], 1, "there is no run 'nobody'"),
        (["settings", "lease_s=0"], 2, "lease_s"),
        (["settings", "colour"], 2, "write it as NAME=VALUE"),
        (["settings", "lease_s=["], 2, "lease_s cannot be read as YAML"),
        (["settings", "history_days=2026-01-01"], 2, "history_days"),
        (["run", "nobody", "--param", "day=2026-01-01"], 1, "there is no task 'nobody'"),
        (["run", "nobody", "--param", "day=!!binary aGk="], 2, "--param day cannot be read as YAML"),
        (["apply", "-f", "/nowhere/tasks.yaml"], 2, "No such file"),
        (["run"], 2, "Missing argument"),
        (["join", "http://127.0.0.1:1", "--id", "new"], 2, "the address of new is missing: give --at"),
        (["join", "127.0.0.1:8101", "--id", "new", "--at", "h:1:2"], 2, "write http://host:port"),
        (["conquer"], 2, "No such command"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_wrong_calls_and_failures_have_different_exit_codes(rota: Rota, words: list[str], code: int, said: str) -> None:
    ended = rota(*words)
    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err


def test_a_wrong_file_changes_nothing_and_its_error_says_where(rota: Rota, cluster: Cluster) -> None:
    wrong = "- {name: right, kind: probe}\n- {name: wrong, kind: probe, weight: 0, params: {steps: many}}\n"
    ended = rota("apply", "-f", "-", stdin=wrong)
    assert (ended.code, ended.out) == (2, "")
    assert "standard input: task 'wrong': weight" in ended.err
    assert cluster.ask("GET", "/v1/tasks/right").status == 404
    assert rota("apply", "-f", "-", stdin="a: [").code == 2
    nothing = rota("apply", "-f", "-", stdin="# nothing\n")
    assert (nothing.code, "standard input contains no task" in nothing.err) == (2, True)
    twice = rota("apply", "-f", "-", stdin="- {name: a, kind: probe}\n- {name: a, kind: probe}\n")
    assert (twice.code, "more than once" in twice.err) == (2, True)


def test_an_unreachable_cluster_and_a_wrong_token_have_different_exit_codes(rota: Rota) -> None:
    [nobody] = free_ports(1)
    away = Rota(f"http://127.0.0.1:{nobody}", TOKEN)("members")
    assert (away.code, "no member answered" in away.err) == (3, True)
    assert Rota("127.0.0.1:8101", TOKEN)("members").code == 2
    refused = Rota(rota.urls, "wrong")("members")
    assert (refused.code, "ROTA_TOKEN" in refused.err) == (2, True)
    for token in ("€", "two\nlines"):
        refused = Rota(rota.urls, token)("members")
        assert (refused.code, "ROTA_TOKEN" in refused.err) == (2, True)


def test_a_node_whose_secret_is_not_text_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(range(128, 160)))
    env = {
        "ROTA_NODE": "a",
        "ROTA_MEMBERS": "a=127.0.0.1:1:2",
        "ROTA_DATA": str(tmp_path / "a"),
        "ROTA_SECRET_FILE": str(tmp_path / "secret"),
    }
    ended = Rota("", env=env)("node")
    assert (ended.code, "make one with: openssl rand -hex 32" in ended.err) == (2, True)


def ports_in_a_row(count: int) -> int:
    """The first of `count` consecutive ports without a listener."""
    for first in free_ports(20):
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(closing(socket.create_server(("127.0.0.1", port))))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports in a row")


def test_up_runs_a_cluster_until_it_is_interrupted(tmp_path: Path) -> None:
    first = ports_in_a_row(2)
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    rota = Rota(f"http://127.0.0.1:{first},http://127.0.0.1:{first + 1}", env=state)
    words = ("up", "--nodes", "2", "--dir", str(tmp_path / "r"), "--port", str(first))
    for turn in range(2):
        with rota.running(*words) as up:
            wait_for("it says that it is ready", lambda up=up: "ready" in up.out())  # type: ignore[misc]
            assert [member["status"] for member in rota("members", "--json").json["items"]] == ["up", "up"]
            taken = rota(*words)
            assert (taken.code, f"a cluster runs already on {tmp_path / 'r'}" in taken.err) == (1, True)
            elsewhere = rota("up", "--dir", str(tmp_path / "other"), "--port", str(first))
            assert (elsewhere.code, f"port {first} is taken" in elsewhere.err) == (1, True)
            if turn == 0:
                assert rota("apply", "-f", "-", stdin="{name: kept, kind: command, params: {argv: ['true']}}").code == 0
            else:
                assert rota("show", "kept").code == 0, "the folder keeps what it knew"
            up.process.send_signal(signal.SIGINT)
            assert up.process.wait(30) == 0
        assert [url for url in rota.urls.split(",") if _listens(url)] == [], "a node has outlived rota up"
    other = rota("up", "--nodes", "3", "--dir", str(tmp_path / "r"), "--port", str(first))
    assert (other.code, "holds a cluster of 2 nodes" in other.err) == (2, True)
    shutil.copy(tmp_path / "r" / "node-1" / "node.json", tmp_path / "r" / "node-2" / "node.json")
    dead = rota(*words)
    assert (dead.code, "node-2 ended with exit code 1" in dead.err, "belongs to node 'node-1'" in dead.err) == (
        1,
        True,
        True,
    )


def test_up_requires_a_token_which_its_user_s_command_line_finds(tmp_path: Path) -> None:
    """Without a token, another user of the machine could register a command with root's cluster and read its files."""
    first = ports_in_a_row(1)
    url = f"http://127.0.0.1:{first}"
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "pg").write_text("hunter2")
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    given = {"ROTA_SECRETS_DIR": str(tmp_path / "tasks"), "ROTA_ENV_ALLOW": "SHELL_IS", "SHELL_IS": "bourne"}
    words = ("up", "--nodes", "1", "--dir", str(tmp_path / "r"), "--port", str(first))
    (tmp_path / "r").mkdir(0o755)
    (tmp_path / "r" / "cluster.json").write_text(json.dumps({"node-1": [free_ports(1)[0], first]}))  # as of before
    for wrong in ("ROTA_BIND", "ROTA_DATA", "ROTA_SECRET"):
        refused = Rota(url, env=state | {wrong: "0.0.0.0"})(*words)
        assert (refused.code, f"rota up does not take {wrong}" in refused.err) == (2, True)
    before = os.umask(0)
    try:
        running = Rota(url, env=state | given).running(*words)
        with running as up:
            wait_for("it says that it is ready", lambda: "ready" in up.out())
            stranger = Rota(url, env={"XDG_STATE_HOME": str(tmp_path / "elsewhere")})
            refused = stranger("apply", "-f", "-", stdin="{name: x, kind: command, params: {argv: [id]}}")
            assert (refused.code, "401" in refused.err or "ROTA_TOKEN" in refused.err) == (2, True)
            assert Rota(url, "wrong", env=state)("members").code == 2
            rota = Rota(url, env=state)
            told = 'test "$A$B" = hunter2bourne && umask && touch by-work && stat -c %a by-work'
            spec = {
                "name": "told",
                "kind": "command",
                "params": {
                    "argv": ["sh", "-c", told],
                    "env": {"A": {"secret": "pg"}, "B": {"env": "SHELL_IS"}},
                },
            }
            assert rota("apply", "-f", "-", stdin=json.dumps(spec)).code == 0
            ran = rota("run", "told", "--wait")
            assert ran.code == 0, ran.err + ran.out
            [run] = rota("runs", "told", "--json").json["items"]
            assert rota("log", run["run_id"]).out.split() == ["0000", "666"], "work has the umask of whoever started it"
            made = [path for path in (tmp_path / "r").rglob("*") if not path.is_symlink()]
            assert {"token", "secret", "lock", "node-1.log", "history.db"} <= {path.name for path in made}
            open_ones = [str(path) for path in made if path.name != "cluster.json" and path.stat().st_mode & 0o077]
            assert open_ones == []
            assert (tmp_path / "r").stat().st_mode & 0o077 == 0
            up.process.send_signal(signal.SIGINT)
            assert up.process.wait(30) == 0
    finally:
        os.umask(before)
    assert list((tmp_path / "state" / "rota" / "up").iterdir()) == [], "no token is sent to whoever takes the port"


@pytest.mark.more
def test_up_stops_its_cluster_when_its_terminal_closes(tmp_path: Path) -> None:
    # The caller of these tests may ignore SIGHUP, and child processes inherit that.
    with _hangup(signal.SIG_DFL), _up(tmp_path) as (up, urls):
        os.kill(int(re.findall(r"process (\d+)", up.out())[0]), signal.SIGHUP)
        wait_for("its end is told", lambda: "node-1 has died (exit code 0)" in up.out())
        assert "stopping on SIGHUP: handing over the runs" in (tmp_path / "r/node-1.log").read_text()
        up.process.send_signal(signal.SIGHUP)
        assert up.process.wait(30) == 0
        assert "stopping on SIGHUP" in up.out()
        assert [url for url in urls if _listens(url)] == [], "a node has outlived rota up"


@pytest.mark.more
def test_up_survives_its_terminal_under_nohup(tmp_path: Path) -> None:
    with _hangup(signal.SIG_IGN), _up(tmp_path) as (up, urls):  # as nohup does
        up.process.send_signal(signal.SIGHUP)
        with pytest.raises(TimeoutExpired):
            up.process.wait(2)
        assert [url for url in urls if _listens(url)] == urls


@contextmanager
def _hangup(disposition: signal.Handlers) -> Iterator[None]:
    """What is started in the block inherits this disposition of SIGHUP."""
    before = signal.signal(signal.SIGHUP, disposition)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.more
def test_up_fails_when_all_nodes_have_died(tmp_path: Path) -> None:
    with _up(tmp_path) as (up, _):
        pids = [int(pid) for pid in re.findall(r"process (\d+)", up.out())]
        assert len(pids) == 2
        os.kill(pids[0], signal.SIGKILL)
        wait_for("its death is told", lambda: "node-1 has died (exit code -9)" in up.out())
        assert up.process.poll() is None
        os.kill(pids[1], signal.SIGKILL)
        assert up.process.wait(30) == 1
        assert f"all nodes have died; their logs are {tmp_path / 'r'}/*.log" in up.out()


@contextmanager
def _up(folder: Path) -> Iterator[tuple[Running, list[str]]]:
    """`rota up` with two ready nodes, and their addresses. Nodes that outlive it are killed by their ids."""
    first = ports_in_a_row(2)
    urls = [f"http://127.0.0.1:{first}", f"http://127.0.0.1:{first + 1}"]
    words = ("up", "--nodes", "2", "--dir", str(folder / "r"), "--port", str(first))
    with Rota(urls[0], env={"XDG_STATE_HOME": str(folder / "state")}).running(*words) as up:
        wait_for("it says that it is ready", lambda: "ready" in up.out())
        pids = [int(pid) for pid in re.findall(r"process (\d+)", up.out())]
        try:
            yield up, urls
        finally:
            if up.process.poll() is not None:
                for pid in pids:
                    if f"ROTA_DATA={folder / 'r'}".encode() in _environment(pid):
                        os.kill(pid, signal.SIGKILL)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _listens(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) == 0
