"""Nodes in containers: up, kill, be without a majority, grow to five and back to three, down and up on another subnet.

Up, with secrets from before; register over HTTP; back up the PostgreSQL service; `docker kill` the owner of a run and
ask where it runs; be without a majority, and unhealthy; grow and shrink while work goes on; down and up again: a leader
within 15 s, and nothing lost.
"""

import time
from collections import Counter
from typing import Any, Final

from node.cli.local import wait_for
from node.client import Client, path
from tests.compose.engine import PROJECT, Compose, container, docker, health, inside, occupied, timed

LEADER_S: Final = 15
SECRET_OF_BEFORE: Final = "0123456789abcdef" * 4
FIVE: Final = "five.env"


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
    grow(compose)
    shrink(compose)
    down_and_up(compose)


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


def grow(compose: Compose) -> None:
    """To five, by `up` with the longer list: it starts the first three anew, and two that ask to be let in."""
    compose.use(FIVE)
    with timed("from three to five, all healthy"):
        compose("up", "--detach", "--wait")
        wait_for("all five are up", lambda: all_up(compose), 60)
    for name in compose.names():
        assert health(name) == ("healthy", "ready"), (name, health(name))
    work_goes_on(compose)


def shrink(compose: Compose) -> None:
    """Back to three, as the head of the compose file says."""
    with timed("from five to three, all healthy"):
        for name in ("node-5", "node-4"):
            wait_for(f"{name} is removed", lambda name=name: removed(compose.client(1, 2, 3), name))  # type: ignore[misc]
        compose("rm", "--stop", "--force", "node-4", "node-5")
        docker("volume", "rm", f"{PROJECT}_node-4", f"{PROJECT}_node-5")
        compose.use(None)
        compose("up", "--detach", "--wait")
        wait_for("all three are up", lambda: all_up(compose), 60)
    work_goes_on(compose)


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
