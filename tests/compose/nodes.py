"""Nodes in containers: up, kill, be without a majority, grow to five and back to three, down and up on another subnet.

Up, with secrets from before; register over HTTP; back up the PostgreSQL service; `docker kill` the owner of a run and
ask where it runs; be without a majority, and unhealthy; grow and shrink while work goes on, which touches none of the
three; down and up again: a leader within 15 s, and nothing lost; begin anew with five.
"""

import time
from collections import Counter
from typing import Any, Final

from node.cli.local import NotInTime, wait_for
from node.client import Client, path
from testkit.each_once import pause
from tests.compose.engine import PROJECT, Compose, container, docker, health, inside, occupied, timed

LEADER_S: Final = 15
SECRET_OF_BEFORE: Final = "0123456789abcdef" * 4
FIVE: Final = "five.env"
STEADY: Final = ("steady-1", "steady-2", "steady-3", "steady-4", "steady-5")
"""Commands that are due every second."""

HELD: Final = ("held-node-1", "held-node-2", "held-node-3", "held-node-4", "held-node-5")
"""Commands that do not end, one for each node."""


def scenario(compose: Compose) -> None:
    """One step after the other."""
    with timed("built"):
        compose("build")
    (compose.secrets / "rota_secret").write_text(SECRET_OF_BEFORE)
    (compose.secrets / "mine").write_text("a task's")
    with timed("up, and all healthy"):
        compose("up", "--detach", "--wait")
    client = compose.client()
    wait_for("all three are up", lambda: all_up(compose), 10)
    secrets_are_apart(compose)
    hardened(compose)
    register(client)
    with timed("PostgreSQL backed up"):
        backup = wait_for("a backup succeeds", lambda: backed_up(client), 60)
        print(f"  {backup['result']['stored_bytes']} bytes on {backup['node']}: {backup['result']['url']}")
    kill_owner(compose, client)
    compose("up", "--detach", "--wait")
    unhealthy_without_a_majority(compose)
    grow_and_shrink(compose)
    down_and_up(compose)
    five_at_first(compose)


def secrets_are_apart(compose: Compose) -> None:
    """What was in the folder is where it belongs, as it was; and each sees what concerns it."""
    assert (compose.secrets / "node" / "rota_secret").read_text() == SECRET_OF_BEFORE
    assert (compose.secrets / "tasks" / "mine").read_text() == "a task's"
    assert not (compose.secrets / "rota_secret").exists()
    assert inside("node-1", "ls /run/secrets").split() == ["mine", "pg_password"]
    assert inside("node-1", "ls /run/rota").split() == ["rota_secret", "rota_token"]
    assert inside("postgres", "ls /run/secrets").split() == ["pg_password"]


def hardened(compose: Compose) -> None:
    """A node has no rights beyond its user's, gains none, and writes to its volumes and to /tmp only."""
    for name in compose.names():
        status = dict(line.split(":", 1) for line in inside(name, "cat /proc/1/status").splitlines())
        assert {status[caps].strip() for caps in ("CapEff", "CapBnd", "CapPrm")} == {"0" * 16}, status
        assert status["NoNewPrivs"].strip() == "1", status
        assert "Read-only file system" in inside(name, "touch /opt/rota/x")
        assert inside(name, "cd /tmp && touch x && cd /srv/data && touch x && rm x") == ""


def register(client: Client) -> None:
    """A backup of the PostgreSQL service, a command that works until it is killed, and one every second."""
    specs: list[dict[str, Any]] = [
        {
            "name": "shop",
            "kind": "backup",
            "params": {
                "source": {
                    "type": "postgres",
                    "url": "postgresql://shop@postgres/shop",
                    "password": {"secret": "pg_password"},
                },
                "destination": "file:///backups",
            },
            "retry": {"attempts": 10, "backoff_s": 1, "factor": 1},
        },
        {"name": "long", "kind": "command", "params": {"argv": ["sleep", "3600"]}, "failover": {"max": 100}},
        {
            "name": "often",
            "kind": "command",
            "params": {"argv": ["true"]},
            "schedule": {"every_s": 1},
            "catch_up": "all",
            "overlap": "allow",
        },
    ]
    client.call("POST", "/v1/tasks", body=specs)
    for task in ("shop", "long"):
        client.call("POST", path("v1", "tasks", task, "runs"))


def kill_owner(compose: Compose, client: Client) -> None:
    """`docker kill` the node that runs `long`; ask where it runs now."""
    before = wait_for("long runs", lambda: next(iter(running(client)), None))
    with timed("docker kill to the new claim"):
        docker("kill", container(before["node"]))
        others = [number for number in (1, 2, 3) if before["node"] != f"node-{number}"]
        after = wait_for("long runs elsewhere", lambda: elsewhere(compose.client(*others), before), 30)
    answer = compose.client(*others).get(path("v1", "tasks", "long", "owner"))
    print(
        f"  {before['node']} was killed; owner {answer['owner']}, runs on {after['node']}, attempt {after['attempt']}"
    )


def unhealthy_without_a_majority(compose: Compose) -> None:
    """The engine tells a node that is not ready from one that is, and why."""
    compose("stop", "node-2", "node-3")
    with timed("node-1 alone is unhealthy"):
        wait_for("it is unhealthy", lambda: health("node-1")[0] == "unhealthy", 60)
    print(f"  {health('node-1')[1]}")
    assert health("node-1")[1].startswith("not ready: ")
    assert inside("node-1", "echo serves") == "serves\n", "it is not stopped over that"
    with timed("healthy again"):
        compose("up", "--detach")  # --wait would fail at once: node-1 is unhealthy
        wait_for("it is healthy", lambda: health("node-1")[0] == "healthy", 60)


def grow_and_shrink(compose: Compose) -> None:
    """From three to five and back under work: none of the three is touched, no attempt and no occurrence is lost."""
    client, three = compose.client(), _started(compose)
    client.call("POST", "/v1/tasks", body=[*map(_steady, STEADY), *map(_held, HELD)])
    held = {name: client.call("POST", path("v1", "tasks", name, "runs")).json["run_id"] for name in HELD[:3]}
    _all_work(client, held, compose.names())
    compose.use(FIVE)
    with timed("from three to five, all healthy"):
        compose("up", "--detach", "--wait")
        wait_for("all five are up", lambda: all_up(compose), 60)
    for name in compose.names():
        wait_for(f"{name} is ready", lambda name=name: health(name) == ("healthy", "ready"), 60)  # type: ignore[misc]
    assert _started(compose).items() >= three.items(), "one of the three was started anew"
    held |= {name: client.call("POST", path("v1", "tasks", name, "runs")).json["run_id"] for name in HELD[3:]}
    _all_work(client, held, compose.names())
    work_goes_on(compose)
    with timed("from five to three, all healthy"):
        for name in ("node-5", "node-4"):
            wait_for(f"{name} is removed", lambda name=name: removed(client, name))  # type: ignore[misc]
        compose("rm", "--stop", "--force", "node-4", "node-5")
        docker("volume", "rm", f"{PROJECT}_node-4", f"{PROJECT}_node-5")
        compose.use(None)
        compose("up", "--detach", "--wait")
        wait_for("all three are up", lambda: all_up(compose), 60)
    assert _started(compose) == three, "one of the three was started anew"
    work_goes_on(compose)
    _all_work(client, held, compose.names())
    runs = [client.get(path("v1", "runs", run_id)) for run_id in held.values()]
    assert [len(run["attempts"]) for run in runs] == [1, 1, 1, 2, 2], "the two have handed over; the three were let be"
    for kept in pause(client, STEADY).values():
        assert not kept.wrong, kept.wrong
        runs += kept.runs
    lost = [run for run in runs if "orphaned" in [attempt["state"] for attempt in run["attempts"]]]
    assert not lost, lost
    print(f"  {len(runs)} runs, none of them lost or twice")
    for name in HELD:
        client.call("DELETE", path("v1", "tasks", name))


def _started(compose: Compose) -> dict[str, str]:
    """Each node's container, and when it was started."""
    form = "{{.Id}} {{.State.StartedAt}} {{.RestartCount}}"
    return {name: docker("inspect", "--format", form, container(name)).strip() for name in compose.names()}


def _steady(name: str) -> dict[str, Any]:
    work = {"kind": "command", "params": {"argv": ["sleep", "0.2"]}, "overlap": "allow", "catch_up": "all"}
    return {"name": name, "schedule": {"every_s": 1}, **work}


def _held(name: str) -> dict[str, Any]:
    return {"name": name, "kind": "command", "params": {"argv": ["sleep", "3600"]}, "pin": name.removeprefix("held-")}


def _all_work(client: Client, run_ids: dict[str, str], nodes: list[str]) -> None:
    """Wait until these runs are at work, and on all of these nodes."""
    told: list[dict[str, Any]] = []

    def all_work() -> bool:
        told[:] = [client.get(path("v1", "runs", run_id)) for run_id in run_ids.values()]
        return all(run["state"] == "running" for run in told) and {run["node"] for run in told} == set(nodes)

    try:
        wait_for(f"there is work on {', '.join(nodes)}", all_work, 60)
    except NotInTime as error:
        raise AssertionError(f"{error}: {told}") from error


def work_goes_on(compose: Compose) -> None:
    """Something that was due after this succeeds; no occurrence ran twice; `long` runs."""
    client = compose.client()
    last = max(run["fire_at"] for run in client.items("/v1/runs", task="often"))

    def newer() -> bool:
        runs = client.items("/v1/runs", task="often", state="succeeded")
        return any(run["fire_at"] > last for run in runs)

    wait_for("often goes on", newer, 30)
    due = Counter(run["fire_at"] for run in client.items("/v1/runs", task="often"))
    twice = [at for at, count in due.items() if count > 1]
    assert not twice, f"claimed twice: {twice}"
    wait_for("long goes on", lambda: running(client), 30)


def down_and_up(compose: Compose) -> None:
    """Down and up again; another network takes the old addresses in between."""
    before, old = compose.client().get("/v1/tasks")["items"], compose.addresses()
    compose("down")
    with occupied(old), timed("up again, and a leader"):
        compose("up", "--detach")
        for number in (1, 2, 3):
            wait_for(f"node-{number} serves", lambda number=number: compose.client(number).get("/healthz"), 60)  # type: ignore[misc]
        begun_s = time.monotonic()
        wait_for("a leader", lambda: compose.client().get("/v1/cluster")["leader"], LEADER_S)
        print(f"  a leader {time.monotonic() - begun_s:.1f} s after all of them served")
        compose("up", "--detach", "--wait")
        wait_for("all three are up", lambda: all_up(compose), 30)
        new = compose.addresses()
        print(f"  addresses before {sorted(old.values())}, after {sorted(new.values())}")
        after = compose.client().get("/v1/tasks")["items"]
        if [task["name"] for task in after] != [task["name"] for task in before]:
            raise AssertionError(f"tasks were lost: {before} before, {after} after")
        if backed_up(compose.client()) is None:
            raise AssertionError("the history of the backup was lost")
        work_goes_on(compose)


def five_at_first(compose: Compose) -> None:
    """A cluster that begins with five: the three found it, and let the two in."""
    compose("down", "--volumes")
    compose.use(FIVE)
    with timed("five that begin at once, all healthy"):
        compose("up", "--detach", "--wait")
        wait_for("all five are up", lambda: all_up(compose), 60)


def all_up(compose: Compose) -> bool:
    """Whether these are the members, and up."""
    found = {member["id"]: member["status"] for member in compose.client().get("/v1/members")["items"]}
    return found == dict.fromkeys(compose.names(), "up")


def removed(client: Client, name: str) -> bool:
    """Whether a member is gone; asks for it if not."""
    if name not in {member["id"] for member in client.get("/v1/members")["items"]}:
        return True
    client.call("DELETE", path("v1", "members", name))
    return False


def backed_up(client: Client) -> dict[str, Any] | None:
    """The run of the backup, once it has succeeded."""
    return next(iter(client.get("/v1/runs", task="shop", state="succeeded")["items"]), None)


def running(client: Client) -> list[dict[str, Any]]:
    """The runs of `long` that are at work."""
    items: list[dict[str, Any]] = client.get("/v1/runs", task="long", state="running")["items"]
    return items


def elsewhere(client: Client, before: dict[str, Any]) -> dict[str, Any] | None:
    """The run, once another node has it."""
    return next((run for run in running(client) if run["node"] != before["node"]), None)
