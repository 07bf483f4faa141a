"""What somebody without the token, or without the secret, can do to a cluster at work: its ports, its logs, its disk.

    python -m bench.doors [--seconds 20] [--quiet 8] [--history 60] [NAME ...]

Three nodes on this machine, with tasks that are due eight times a second and skip what finds another run at work.
Each attack goes against the leader, from a process of its own, between two quiet spans; a client with the token asks
that node all the time, each time over a new connection. Nodes, attacker and client share the machine: the table says
how much of a core the attacker takes away. An attack is tried again, twice at most, where the quiet spans were none.

Exit code 1: a request of the client was not answered or the p99 was over 2 s, over 15 % more of what was due was
skipped or missed, a node ended or was marked down, all nodes' logs took over 128 KiB in one attack, a node grew by
over 128 MiB, somebody who had not proved that it has the secret was told more than a greeting and a refusal, the
finished runs grew by over 1 MiB an hour while all was skipped; or an attack was not there.
"""

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.beginning import options_of
from bench.doors.attack import Kind, attack, ready
from bench.doors.conversation import Address
from bench.doors.judgement import Span, Trial, p, per_hour, wrong, wrong_history
from bench.doors.watch import Watch, history_bytes
from node.cli.local import LocalCluster, wait_for
from node.cli.ports import free_ports
from node.client import path
from node.identity.member_key import member_key

EVERY_S: Final = (1.0, 1.0, 1.0, 1.0, 0.5, 0.5)
FEW: Final = 1_024
TRIES: Final = 3
"""How often an attack is tried while others keep the machine so busy that it shows nothing."""

BLOCKED: Final = 4
BLOCKED_EVERY_S: Final = 0.1


class Scene(NamedTuple):
    """An attack, how many take part, and the nodes' limit on descriptors (None: as it is here)."""

    kind: Kind
    attackers: int
    limit: int | None = None
    token: bool = False

    @property
    def name(self) -> str:
        """What the table calls it."""
        what = {
            "idle": "idle connections",
            "half": "half-sent requests",
            "bombs": "gzip bombs",
            "garbage": "that send garbage",
            "heartbeat": "guess at heartbeats",
            "raft": "guess at Raft",
        }[self.kind]
        more = f", limit {self.limit:,}" if self.limit else ", with the token" if self.token else ""
        return f"{self.attackers:,} {what}{more}"

    @property
    def asks(self) -> bool:
        """Whether its requests are answered."""
        return self.kind not in ("idle", "half")


SCENES: Final = (
    Scene("idle", 500),
    Scene("idle", 2_000),
    Scene("half", 500),
    Scene("half", 2_000),
    Scene("bombs", 6),
    Scene("bombs", 6, token=True),
    Scene("garbage", 500),
    Scene("heartbeat", 32),
    Scene("raft", 32),
    Scene("idle", 2_000, FEW),
    Scene("half", 2_000, FEW),
)


class Nodes(LocalCluster):
    """Nodes that may have so many descriptors each, soft and hard."""

    def __init__(self, folder: Path, limit: int | None) -> None:
        heartbeats = dict(zip(("node-1", "node-2", "node-3"), free_ports(3), strict=True))
        ports = {name: {"ROTA_HEARTBEAT_PORT": str(port)} for name, port in heartbeats.items()}
        super().__init__(folder, 3, env_of=ports)
        self.heartbeat_ports = heartbeats
        self._limit = limit

    def command(self, name: str) -> list[str]:
        """What a node is started with."""
        node = super().command(name)
        return node if self._limit is None else ["/bin/sh", "-c", f'ulimit -n {self._limit}; exec "$@"', "sh", *node]

    def address(self, name: str, kind: Kind) -> Address:
        """The port of a node that an attack is against."""
        seeds = dict(one.split("=") for one in self.members.split(","))
        host, raft, http = seeds[name].split(":")
        ports = {"heartbeat": self.heartbeat_ports[name], "raft": int(raft)}
        return host, ports.get(kind, int(http))

    def incarnations(self) -> dict[str, int]:
        """Which start of each member is up."""
        items = wait_for("the members are told", lambda: self.client.get("/v1/members")["items"])
        return {one["id"]: one["incarnation"] for one in items if one["status"] == "up"}


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 if something that is promised did not hold, or an attack was not there."""
    parser = options_of(__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="of each attack")
    parser.add_argument("--quiet", type=float, default=8, help="seconds before each")
    parser.add_argument("--history", type=float, default=60, help="seconds in which all is skipped")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="of idle, half, bombs, garbage, heartbeat, raft, history"
    )
    options = parser.parse_args(arguments)
    chosen = set(options.names) or {"history", *(scene.kind for scene in SCENES)}
    if unknown := chosen - {"history", *(scene.kind for scene in SCENES)}:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    found: list[str] = []
    print(
        f"{'':32} {'API p50 ms':>14} {'p99 ms':>14} {'passed over':>23} {'log KiB':>8} {'node MiB':>12}  attack",
        flush=True,
    )
    for limit in (None, FEW):
        scenes = [scene for scene in SCENES if scene.limit == limit and scene.kind in chosen]
        if scenes or (limit is None and "history" in chosen):
            with _at_work(limit) as cluster:
                for scene in scenes:
                    found += [f"{scene.name}: {line}" for line in _try(cluster, scene, options.quiet, options.seconds)]
                if limit is None and "history" in chosen:
                    found += [f"history: {line}" for line in _skip_all(cluster, options.history)]
    _tell_key()
    for line in found:
        print(f"WRONG {line}", flush=True)
    return 1 if found else 0


@contextmanager
def _at_work(limit: int | None) -> Iterator[Nodes]:
    with tempfile.TemporaryDirectory() as folder, Nodes(Path(folder), limit) as cluster:
        cluster.start()
        cluster.wait_until_ready()
        for number, every_s in enumerate(EVERY_S):
            _put(cluster, f"short-{number}", ["true"], every_s)
        wait_for("each has run", lambda: all(_has_run(cluster, f"short-{number}") for number in range(len(EVERY_S))))
        yield cluster


def _put(cluster: Nodes, name: str, argv: Sequence[str], every_s: float) -> None:
    spec = {"kind": "command", "params": {"argv": list(argv)}, "schedule": {"every_s": every_s}, "overlap": "skip"}
    cluster.client.call("PUT", path("v1", "tasks", name), body=spec)


def _has_run(cluster: Nodes, name: str) -> bool:
    return bool(cluster.client.get("/v1/runs", task=name, state="succeeded", limit=1)["items"])


def _try(cluster: Nodes, scene: Scene, quiet_s: float, seconds: float) -> list[str]:
    """One attack, again where the machine was too busy to show anything, each told in one line; what is wrong."""
    for _ in range(TRIES):
        trial = _trial(cluster, scene, quiet_s, seconds)
        print(f"{scene.name:32} {_figures(trial)}", flush=True)
        if trial.shows:
            break
    return wrong(trial)


def _trial(cluster: Nodes, scene: Scene, quiet_s: float, seconds: float) -> Trial:
    leader = wait_for("there is a leader", lambda: cluster.client.get("/v1/cluster")["leader"])
    watch = Watch(cluster, leader, sum(1 / every_s for every_s in EVERY_S))
    members, address = cluster.incarnations(), cluster.address(leader, scene.kind)

    def quiet() -> Span:
        end = time.monotonic() + quiet_s
        return watch.until(lambda: time.monotonic() >= end)

    before = quiet()
    # A new interpreter: a forked one would have the sockets of this one.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(ready).result()
        token = cluster.token if scene.token else None
        attacking = pool.submit(attack, scene.kind, address, scene.attackers, seconds, token)
        during = watch.until(attacking.done)
        tally = attacking.result()
    after, now = quiet(), cluster.incarnations()
    down = [name for name in cluster.names if cluster.exit_code(name) is not None or now.get(name) != members[name]]
    return Trial(before, during, after, tally, scene.attackers, scene.asks, down)


def _figures(trial: Trial) -> str:
    before, during, after, tally = trial.before, trial.during, trial.after, trial.tally
    p50, p99 = (
        f"{p(before.answers_ms, percent):.1f} -> {p(during.answers_ms, percent):.1f}"
        if before.answers_ms and during.answers_ms
        else "none"
        for percent in (50, 99)
    )
    passed = " -> ".join(f"{span.passed_over}/{span.due:.0f}" for span in (before, during, after))
    a_second = f", {tally.answered / tally.seconds:.0f}/s answered" if trial.asks else ""
    return (
        f"{p50:>14} {p99:>14} {passed:>23} {during.log_bytes / 1024:8.1f} "
        f"{f'{before.memory_mib:.0f} -> {during.memory_mib:.0f}':>12}  {tally.opened} opened, {tally.held} at once"
        f"{a_second}; attacker {tally.cpu_s / tally.seconds:.0%} of a core"
    )


def _skip_all(cluster: Nodes, seconds: float) -> list[str]:
    """Tasks that are due ten times a second behind runs that do not end, told in one line; what is wrong."""
    for number in range(len(EVERY_S)):
        cluster.client.call("DELETE", path("v1", "tasks", f"short-{number}"))
    wait_for("nothing runs", lambda: not cluster.client.get("/v1/runs", state="running")["items"])
    for number in range(BLOCKED):
        _put(cluster, f"blocked-{number}", ["sleep", "3600"], BLOCKED_EVERY_S)
    watch = Watch(cluster, cluster.names[0], BLOCKED / BLOCKED_EVERY_S)
    folders = [cluster.folder / name for name in cluster.names]
    # Each series has its record, which has been replaced often enough for the pages it takes to be there.
    wait_for("all are skipped", lambda: watch.passed_over() >= 100 * BLOCKED, deadline_s=60)
    skipped, bytes_before = watch.passed_over(), [history_bytes(folder) for folder in folders]
    begun = time.monotonic()
    time.sleep(seconds)
    took_s, skipped = time.monotonic() - begun, watch.passed_over() - skipped
    grown = max(history_bytes(folder) - was for folder, was in zip(folders, bytes_before, strict=True))
    due = took_s * BLOCKED / BLOCKED_EVERY_S
    print(
        f"{BLOCKED} tasks every {BLOCKED_EVERY_S} s behind long runs: {skipped} of {due:.0f} occurrences skipped in "
        f"{took_s:.0f} s; history.db grew by {grown} bytes at most: {per_hour(grown, took_s):.0f} bytes an hour",
        flush=True,
    )
    return wrong_history(grown, took_s, skipped, due)


def _tell_key() -> None:
    """What one guess costs somebody who has heard something that was made with the secret."""
    begun = time.process_time()
    member_key("a guess", "a purpose")
    print(f"a key is made of a secret in {1000 * (time.process_time() - begun):.0f} ms of a core", flush=True)


if __name__ == "__main__":
    sys.exit(main())
