"""How quickly the API answers: three nodes on this machine, one client, a connection to each kept open.

    python -m bench.api [--puts 400] [--tasks 10000] [--reads 1000]

A PUT is answered once its entry is committed and applied; `owner` is read with all the tasks registered. What the
client itself needs for a request (/healthz, which touches nothing) is printed beside it and is in every figure.
"""

import http.client
import json
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from bench.beginning import options_of, ready_cluster
from node.client import path

LIST = 1_000
"""Specs in one POST: a list is at most 1 MiB."""

_JSON = {"Content-Type": "application/json"}


class Connection:
    """One connection to one node, kept open."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._http = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        self._headers = _JSON | ({"Authorization": f"Bearer {token}"} if token else {})

    def call(self, method: str, target: str, body: Any = None) -> Any:
        """A request; what was answered. Raises `RuntimeError` for an answer of 400 and more."""
        data = None if body is None else json.dumps(body).encode()
        self._http.request(method, target, data, self._headers)
        response = self._http.getresponse()
        answer = response.read()
        if response.status >= 400:
            raise RuntimeError(f"{method} {target}: {response.status} {answer.decode()}")
        return json.loads(answer) if answer else None

    def close(self) -> None:
        """Close it."""
        self._http.close()


def spec(name: str) -> dict[str, Any]:
    """A task that is never due."""
    return {
        "name": name,
        "kind": "command",
        "params": {"argv": ["true"]},
        "schedule": {"cron": "0 0 1 1 *"},
    }


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = options_of(__doc__)
    parser.add_argument("--puts", type=int, default=400)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--reads", type=int, default=1_000)
    options = parser.parse_args(arguments)
    with ready_cluster() as cluster:
        leader = cluster.client.get("/v1/cluster")["leader"]
        follower = next(name for name in cluster.names if name != leader)
        ways = {
            "leader": Connection(cluster.url(leader), cluster.token),
            "follower": Connection(cluster.url(follower), cluster.token),
        }
        _each(ways, "GET /healthz", range(options.reads), lambda way, _: way.call("GET", "/healthz"))
        _puts(ways, "few", options.puts)
        _lists(ways, options.tasks)
        _puts(ways, f"{options.tasks:,}", options.puts)
        names = [f"listed-{number * 7919 % options.tasks}" for number in range(options.reads)]
        _each(
            ways,
            f"GET .../owner, {options.tasks:,} tasks",
            names,
            lambda way, name: way.call("GET", path("v1", "tasks", name, "owner")),
        )
        for way in ways.values():
            way.close()


def _puts(ways: dict[str, Connection], beside: str, count: int) -> None:
    """PUT tasks that are not there yet."""
    stem = f"put-beside-{beside.replace(',', '')}"
    _each(
        ways,
        f"PUT of a task beside {beside}",
        [f"{stem}-{number}" for number in range(count)],
        lambda way, name: way.call("PUT", path("v1", "tasks", name), spec(name)),
    )


def _each(ways: dict[str, Connection], what: str, items: Iterable[Any], ask: Callable[[Connection, Any], Any]) -> None:
    """Ask through each way in turn, so that both are measured under the same load of the machine."""
    took: dict[str, list[float]] = {title: [] for title in ways}
    for turn, item in enumerate(items):
        title = list(ways)[turn % len(ways)]
        begun = time.perf_counter()
        ask(ways[title], item)
        took[title].append((time.perf_counter() - begun) * 1000)
    for title, each in took.items():
        cuts = statistics.quantiles(each, n=20)
        print(
            f"{what:34} {title:9} n={len(each):4}  p50 {cuts[9]:6.2f} ms  p95 {cuts[18]:6.2f} ms",
            flush=True,
        )


def _lists(ways: dict[str, Connection], count: int) -> None:
    """Register `count` tasks through the leader, and change them through the follower."""
    for title, way in ways.items():
        begun = time.perf_counter()
        for start in range(0, count, LIST):
            specs = [spec(f"listed-{number}") for number in range(start, min(start + LIST, count))]
            if title != "leader":
                specs = [{**one, "params": {"argv": ["false"]}} for one in specs]
            way.call("POST", "/v1/tasks", specs)
        done = "registered" if title == "leader" else "changed"
        print(
            f"{f'POST of {count:,} tasks, {LIST:,} a list':34} {title:9} "
            f"all {done} in {time.perf_counter() - begun:.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
