"""A cluster on this machine: one process for each node, with its own folder, ports and log file.

Used by `rota up`, the demo, the benchmarks and the tests.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self, TypeVar

from node.cli.ports import HOST, free_ports, hold
from node.client import ApiProblem, Client, Unreachable
from node.settings.own_environment import HANDED, memory_file, parted

_T = TypeVar("_T")


class NotInTime(Exception):
    """A condition did not become true in time. The message names the condition and the last observation."""


PAUSE_MAX_S: Final = 0.25
"""Longest pause between two probes. A probe may cost a busy node some milliseconds."""


def wait_for(what: str, probe: Callable[[], _T | None], deadline_s: float = 20, pause_s: float = 0.02) -> _T:
    """Call `probe` until it returns a true value, and return this value. Raises `NotInTime` after `deadline_s`.

    `Unreachable` and `ApiProblem` count as "not yet". The pause between two probes is `pause_s`, or a fiftieth of the
    time waited so far if that is more, and at most `PAUSE_MAX_S`.
    """
    begun, seen = time.monotonic(), "nothing"
    end = begun + deadline_s
    while True:
        try:
            if value := probe():
                return value
            seen = repr(value)
        except (Unreachable, ApiProblem) as error:
            seen = str(error)
        now = time.monotonic()
        if now > end:
            raise NotInTime(f"{what}: not within {deadline_s} s; last seen: {seen}")
        time.sleep(max(pause_s, min(PAUSE_MAX_S, (now - begun) / 50)))


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _ensure_secret(path: Path) -> None:
    """Make sure that `path` holds a secret that only this user can read. Keeps an existing one. Raises `OSError`."""
    if path.exists():
        path.chmod(0o600)
        return
    aside = path.with_name(f".{path.name}.new")
    aside.unlink(missing_ok=True)
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    aside.replace(path)


class LocalCluster:
    """Nodes `node-1`, `node-2`, ... below a folder, which keeps their ports, secret and token for the next start.

    `http_ports` are the HTTP ports; None: chosen by the kernel. `env` is added to every node's environment, `env_of` to
    the environments of single nodes. The token is the one in `env`, else a new one; with `open_to_all` no token is
    required, and every process on this machine may register tasks. Each node has its own session, unless
    `one_session`. `umask` is the umask of nodes and tasks; None: this process's. No node runs until `start`.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int = 3,
        http_ports: list[int] | None = None,
        env: Mapping[str, str] | None = None,
        env_of: Mapping[str, Mapping[str, str]] | None = None,
        *,
        one_session: bool = False,
        open_to_all: bool = False,
        umask: int | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (self.folder / "cluster.json").exists():
            self.folder.chmod(0o700)
        self.names = [f"node-{number}" for number in range(1, nodes + 1)]
        self._env = dict(env or {})
        self._env_of = env_of or {}
        self._one_session = one_session
        self._umask = -1 if umask is None else umask
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._plan = self._load_or_make_plan(nodes, http_ports)
        self._reserved = hold(port for ports in self._plan.values() for port in ports)
        self.token_file: Path | None = None
        self.token = self._find_or_make_token(open_to_all)
        self.client = Client([self.url(name) for name in self.names], self.token)

    def _load_or_make_plan(self, nodes: int, http_ports: list[int] | None) -> dict[str, list[int]]:
        """Return the Raft and HTTP port of each node, from cluster.json if present. Raises `ValueError`, `OSError`."""
        path = self.folder / "cluster.json"
        if path.exists():
            plan: dict[str, list[int]] = json.loads(path.read_text())
            if len(plan) != nodes:
                raise ValueError(
                    f"{self.folder} holds a cluster of {len(plan)} nodes: start it with --nodes {len(plan)}, "
                    "or choose another folder for a new cluster"
                )
            if http_ports:
                plan = {name: [ports[0], http] for (name, ports), http in zip(plan.items(), http_ports, strict=True)}
        else:
            raft = free_ports(2 * nodes)
            http = http_ports or raft[nodes:]
            plan = {name: [raft[index], http[index]] for index, name in enumerate(self.names)}
        path.write_text(json.dumps(plan))
        _ensure_secret(self.folder / "secret")
        return plan

    def _find_or_make_token(self, open_to_all: bool) -> str | None:
        """Return the clients' token: from `env`, or the folder's token file, made if missing. Raises `OSError`."""
        if token := self._env.get("ROTA_TOKEN"):
            return token
        if given := self._env.get("ROTA_TOKEN_FILE"):
            self.token_file = Path(given).absolute()
        elif open_to_all:
            return None
        else:
            self.token_file = self.folder / "token"
            _ensure_secret(self.token_file)
        self._env["ROTA_TOKEN_FILE"] = str(self.token_file)
        return self.token_file.read_text().strip()

    @property
    def http_ports(self) -> list[int]:
        """The ports of the nodes' APIs."""
        return [http for _, http in self._plan.values()]

    @property
    def members(self) -> str:
        """The value of ROTA_MEMBERS."""
        return ",".join(f"{name}={self.host(name)}:{raft}:{http}" for name, (raft, http) in self._plan.items())

    def host(self, name: str) -> str:
        """Return the address of a node. Overridden by test clusters in several network namespaces."""
        return HOST

    def url(self, name: str) -> str:
        """Return the address of a node's API."""
        return f"http://{self.host(name)}:{self._plan[name][1]}"

    def client_of(self, name: str, timeout_s: float = 15) -> Client:
        """Return a client that calls one node only."""
        return Client([self.url(name)], self.token, timeout_s)

    def log_file(self, name: str) -> Path:
        """Return the file with a node's output."""
        return self.folder / f"{name}.log"

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment of a node's process."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("ROTA_")}
        others = (str(self.folder / each) for each in self.names if each != name)
        return {
            **inherited,
            "ROTA_NODE": name,
            "ROTA_MEMBERS": self.members,
            "ROTA_DATA": str(self.folder / name),
            "ROTA_SECRET_FILE": str(self.folder / "secret"),
            "ROTA_ALLOW_COMMAND": "1",
            **self._env,
            **self._env_of.get(name, {}),
            "ROTA_PRIVATE": ",".join(filter(None, (self._env.get("ROTA_PRIVATE"), *others))),
        }

    def command(self, name: str) -> list[str]:
        """Return the command line of a node's process."""
        return [sys.executable, "-m", "node.cli.entry", "node"]

    def start(self, *names: str) -> None:
        """Start these nodes, or all. Does not wait until they are ready."""
        for name in names or self.names:
            # Hand over the secrets in a file, so that the node need not start itself anew to hide them
            # (`node.settings.own_environment`).
            environment, secret = parted(self.environment(name))
            with os.fdopen(memory_file(secret)) as handed, open(self.log_file(name), "ab", opener=_open_private) as log:
                self._processes[name] = subprocess.Popen(
                    self.command(name),
                    env={**environment, HANDED: str(handed.fileno())},
                    pass_fds=[handed.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=not self._one_session,
                    umask=self._umask,
                )

    def pid(self, name: str) -> int:
        """Return a started node's process id."""
        return self._processes[name].pid

    def exit_code(self, name: str) -> int | None:
        """Return the exit code of a node's process; None while it runs, or if it was not started."""
        process = self._processes.get(name)
        return None if process is None else process.poll()

    def running(self) -> list[str]:
        """Return the nodes whose processes run."""
        return [name for name, process in self._processes.items() if process.poll() is None]

    def kill(self, name: str) -> None:
        """Send SIGKILL to a node, and wait until its process has ended."""
        self._processes[name].kill()
        self._processes[name].wait()

    def terminate(self, name: str) -> None:
        """Send SIGTERM. Does not wait."""
        self._processes[name].terminate()

    def kill_at_once(self, *names: str) -> None:
        """Send SIGKILL to all of these nodes, then wait until their processes have ended."""
        for name in names:
            self._processes[name].kill()
        for name in names:
            self._processes[name].wait()

    def pause(self, name: str) -> None:
        """Send SIGSTOP: the process stays, but does not run."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Send SIGCONT, so that the process runs again."""
        self._processes[name].send_signal(signal.SIGCONT)

    def stop(self, *names: str, deadline_s: float = 15) -> None:
        """Send SIGTERM to these nodes, or all, and wait. After `deadline_s`, kill those that have not ended."""
        chosen = [self._processes[name] for name in names or self.running() if self._processes[name].poll() is None]
        for process in chosen:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        end = time.monotonic() + deadline_s
        for process in chosen:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def wait_until_ready(self, *names: str, deadline_s: float = 30, check: Callable[[], None] = lambda: None) -> None:
        """Wait until each of these nodes, or all, has caught up, has a leader and holds a lease.

        `check` is called before each probe; an exception that it raises ends the wait. Raises `NotInTime`.
        """
        chosen = names or self.names
        for name in chosen:
            wait_for(f"{name} is ready", lambda name=name: self._ready(name, chosen, check), deadline_s)  # type: ignore[misc]

    def _ready(self, name: str, needed: Sequence[str], check: Callable[[], None]) -> bool:
        check()
        # Check the others, because without them there may be no quorum, and this node would never become ready.
        for one in needed:
            if (code := self.exit_code(one)) is not None:
                last = self.log_file(one).read_text(errors="replace").strip().rpartition("\n")[2]
                raise NotInTime(f"{one} ended with exit code {code}: {last}")
        return bool(self.client_of(name, 5).call("GET", "/readyz"))

    def release_ports(self) -> None:
        """Stop reserving the nodes' ports. Call it when no node will be started again."""
        self._reserved.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.release_ports()
