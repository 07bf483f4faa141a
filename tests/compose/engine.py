"""`docker compose` on the project's file, and what a test asks the engine besides."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from node.cli.ports import free_ports
from node.client import Client

ROOT: Final = Path(__file__).parents[2]
PROJECT: Final = "rota-compose-test"
LOCAL_BASE: Final = "rota-base:bookworm"
"""Where it is there, both images are made from it: no image registry is needed."""


class Compose:
    """`docker compose`, with ports, secrets and images for the test, and one of the project's files of settings.

    `env_file`: its name, for example five.env; None for three nodes without Spark. `more`: variables beside it.
    """

    def __init__(self, folder: Path, env_file: str | None = None, **more: str) -> None:
        self.secrets = folder / "secrets"
        self.secrets.mkdir()
        self.ports = free_ports(5)
        self._env_file = env_file
        self._env = os.environ | {
            "ROTA_SECRETS": str(self.secrets),
            "ROTA_ALLOW_COMMAND": "1",
            **more,
            **{f"ROTA_PORT_{number}": str(port) for number, port in enumerate(self.ports, 1)},
        }
        base = os.environ.get("BASE", LOCAL_BASE)
        if _has_image(base):
            self._env["BASE"] = base
            self._env["ROTA_POSTGRES_IMAGE"] = "rota-test-postgres:local"
            _build_postgres(base)

    def __call__(self, *words: str) -> str:
        """Run `docker compose` with these words; its standard output. Raises `AssertionError` if it fails."""
        project = ["--project-name", PROJECT, "--file", str(ROOT / "docker-compose.yml")]
        if self._env_file is not None:
            project += ["--env-file", str(ROOT / self._env_file)]
        done = subprocess.run(
            ["docker", "compose", *project, *words], env=self._env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise AssertionError(f"docker compose {' '.join(words)} failed:\n{done.stderr[-3000:]}")
        return done.stdout

    def use(self, env_file: str | None) -> None:
        """Another file of settings from the next command on, or none."""
        self._env_file = env_file

    @property
    def nodes(self) -> int:
        """How many nodes there are to be."""
        return 5 if self._env_file == "five.env" else 3

    def client(self, *nodes: int) -> Client:
        """A client for these nodes (1, 2, 3), or all, with the token that the first `up` made."""
        token = (self.secrets / "node" / "rota_token").read_text().strip()
        chosen = nodes or range(1, self.nodes + 1)
        return Client([f"http://127.0.0.1:{self.ports[number - 1]}" for number in chosen], token)

    def names(self) -> list[str]:
        """The nodes that there are to be."""
        return [f"node-{number}" for number in range(1, self.nodes + 1)]

    def addresses(self) -> dict[str, str]:
        """The nodes' addresses in their network."""
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return {name: docker("inspect", "--format", form, container(name)).strip() for name in self.names()}


def container(service: str) -> str:
    """The name of a service's container."""
    return f"{PROJECT}-{service}-1"


def health(service: str) -> tuple[str, str]:
    """What the engine takes a service's container for, and what its last check said."""
    told: dict[str, Any] = json.loads(docker("inspect", "--format", "{{json .State.Health}}", container(service)))
    return told["Status"], told["Log"][-1]["Output"].strip() if told["Log"] else ""


def inside(service: str, script: str) -> str:
    """What a script says in a service's container, as its user, on both of its outputs."""
    words = ["docker", "exec", container(service), "sh", "-c", f"exec 2>&1; {script}"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def answers() -> bool:
    """Whether there is an engine."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def docker(*words: str) -> str:
    """Run `docker`; its standard output."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout


@contextmanager
def occupied(addresses: dict[str, str]) -> Iterator[None]:
    """While the block lasts, another network has the subnet in which these addresses were."""
    subnet = ".".join(next(filter(None, addresses.values())).split(".")[:2]) + ".0.0/16"
    docker("network", "create", "--subnet", subnet, f"{PROJECT}-other")
    try:
        yield
    finally:
        docker("network", "rm", f"{PROJECT}-other")


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say how long something took."""
    begun_s = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - begun_s:.1f} s", flush=True)


def _build_postgres(base: str) -> None:
    folder = Path(__file__).parent
    dockerfile, tag = str(folder / "postgres.Dockerfile"), "rota-test-postgres:local"
    command = ["docker", "build", "--build-arg", f"BASE={base}", "--tag", tag, "--file", dockerfile, str(folder)]
    subprocess.run(command, env=os.environ | {"DOCKER_BUILDKIT": "0"}, check=True, stdout=subprocess.DEVNULL)


def _has_image(name: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", name], capture_output=True, check=False).returncode == 0
