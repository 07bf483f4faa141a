"""`make compose-test`: the compose file as a user would run it, on whatever Docker engine answers.

Up; register over HTTP; back up the PostgreSQL service; `docker kill` the owner of a run and ask where it runs; down
and up again on another subnet: a leader within 15 s, and nothing lost. Ends with 0, or with 1 and what was wrong;
where no engine answers it says so and ends with 0.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from node.cli.local import NotInTime, wait_for
from node.cli.ports import free_ports
from node.client import Client, path

ROOT: Final = Path(__file__).parents[2]
PROJECT: Final = "rota-compose-test"
LOCAL_BASE: Final = "rota-base:bookworm"
FINAL: Final = ("succeeded", "failed", "cancelled", "timed_out", "abandoned")
LEADER_S: Final = 15


class Compose:
    """`docker compose` on the project's file, with ports, secrets and images for the test."""

    def __init__(self, folder: Path) -> None:
        self.secrets = folder / "secrets"
        self.secrets.mkdir()
        self.ports = free_ports(3)
        self._env = os.environ | {
            "ROTA_SECRETS": str(self.secrets),
            "ROTA_ALLOW_COMMAND": "1",
            "ROTA_TARGET": "rota",
            **{f"ROTA_PORT_{number}": str(port) for number, port in enumerate(self.ports, 1)},
        }
        if _has_image(LOCAL_BASE):
            self._env["BASE"] = LOCAL_BASE
            self._env["ROTA_POSTGRES_IMAGE"] = "rota-test-postgres:local"
            _build_postgres()

    def __call__(self, *words: str) -> str:
        """Run `docker compose` with these words; its standard output."""
        command = ["docker", "compose", "--project-name", PROJECT, "--file", str(ROOT / "docker-compose.yml"), *words]
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"docker compose {' '.join(words)} failed:\n{done.stderr[-3000:]}")
        return done.stdout

    def client(self, *nodes: int) -> Client:
        """A client for these nodes (1, 2, 3), or all, with the token that the first `up` made."""
        token = (self.secrets / "rota_token").read_text().strip()
        chosen = nodes or (1, 2, 3)
        return Client([f"http://127.0.0.1:{self.ports[number - 1]}" for number in chosen], token)

    def addresses(self) -> dict[str, str]:
        """The nodes' addresses in their network."""
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        names = [f"node-{number}" for number in (1, 2, 3)]
        return {name: _docker("inspect", "--format", form, f"{PROJECT}-{name}-1").strip() for name in names}


def main() -> None:
    """Run the test."""
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        print("compose-test: no Docker engine answers here, so nothing was tested")
        return
    with tempfile.TemporaryDirectory() as folder:
        compose = Compose(Path(folder))
        try:
            scenario(compose)
        except NotInTime as error:
            print(compose("logs", "--tail", "40"))
            sys.exit(f"compose-test: FAILED: {error}")
        finally:
            compose("down", "--volumes", "--remove-orphans")
    print("compose-test: all of it held")


def scenario(compose: Compose) -> None:
    """Up, a backup, a kill, down and up again."""
    with timed("built"):
        compose("build")
    with timed("up, and a leader"):
        compose("up", "--detach")
        wait_for("the token is made", lambda: (compose.secrets / "rota_token").exists(), 60)
        client = compose.client()
        wait_for("all three are up", lambda: all_up(client), 60)
    register(client)
    with timed("PostgreSQL backed up"):
        backup = wait_for("a backup succeeds", lambda: backed_up(client), 60)
        print(f"  {backup['result']['stored_bytes']} bytes on {backup['node']}: {backup['result']['url']}")
    kill_owner(compose, client)
    down_and_up(compose)


def register(client: Client) -> None:
    """A backup of the PostgreSQL service and a command that works until it is killed."""
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
    ]
    client.call("POST", "/v1/tasks", body=specs)
    for task in ("shop", "long"):
        client.call("POST", path("v1", "tasks", task, "runs"))


def kill_owner(compose: Compose, client: Client) -> None:
    """`docker kill` the node that runs `long`; ask where it runs now."""
    before = wait_for("long runs", lambda: next(iter(running(client)), None))
    with timed("docker kill to the new claim"):
        _docker("kill", f"{PROJECT}-{before['node']}-1")
        others = [number for number in (1, 2, 3) if before["node"] != f"node-{number}"]
        after = wait_for("long runs elsewhere", lambda: elsewhere(compose.client(*others), before), 30)
    answer = compose.client(*others).get(path("v1", "tasks", "long", "owner"))
    print(
        f"  {before['node']} was killed; owner {answer['owner']}, runs on {after['node']}, attempt {after['attempt']}"
    )


def down_and_up(compose: Compose) -> None:
    """Down and up again; another network takes the old addresses in between."""
    before, old = compose.client().get("/v1/tasks")["items"], compose.addresses()
    compose("down")
    with occupied(old), timed("up again, and a leader"):
        compose("up", "--detach", "--wait")
        begun_s = time.monotonic()
        wait_for("a leader", lambda: compose.client().get("/v1/cluster")["leader"], LEADER_S)
        print(f"  a leader {time.monotonic() - begun_s:.1f} s after the containers were healthy")
        wait_for("all three are up", lambda: all_up(compose.client()), 30)
        new = compose.addresses()
        print(f"  addresses before {sorted(old.values())}, after {sorted(new.values())}")
        after = compose.client().get("/v1/tasks")["items"]
        if [task["name"] for task in after] != [task["name"] for task in before]:
            raise SystemExit(f"tasks were lost: {before} before, {after} after")
        if backed_up(compose.client()) is None:
            raise SystemExit("the history of the backup was lost")
        wait_for("long goes on", lambda: running(compose.client()), 30)


def all_up(client: Client) -> bool:
    """Whether all three members are up."""
    return [member["status"] for member in client.get("/v1/members")["items"]] == ["up"] * 3


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


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say how long something took."""
    begun_s = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - begun_s:.1f} s", flush=True)


@contextmanager
def occupied(addresses: dict[str, str]) -> Iterator[None]:
    """While the block lasts, another network has the subnet in which these addresses were."""
    subnet = ".".join(next(filter(None, addresses.values())).split(".")[:2]) + ".0.0/16"
    _docker("network", "create", "--subnet", subnet, f"{PROJECT}-other")
    try:
        yield
    finally:
        _docker("network", "rm", f"{PROJECT}-other")


def _build_postgres() -> None:
    folder = Path(__file__).parent
    dockerfile, tag = str(folder / "postgres.Dockerfile"), "rota-test-postgres:local"
    command = ["docker", "build", "--build-arg", f"BASE={LOCAL_BASE}", "--tag", tag, "--file", dockerfile, str(folder)]
    subprocess.run(command, env=os.environ | {"DOCKER_BUILDKIT": "0"}, check=True, stdout=subprocess.DEVNULL)


def _has_image(name: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", name], capture_output=True, check=False).returncode == 0


def _docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
