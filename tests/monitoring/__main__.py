"""`make monitoring-test`: a real Prometheus scrapes a real cluster, by the rules of deploy/prometheus.

    python -m tests.monitoring

Plays what the rules are about: a run that fails, a member that dies, a majority that is lost. Rules have to fire, and
to be silent before and after; promtool tests each one's patience. Each panel of deploy/grafana has to have an answer.
It needs the programs `prometheus` and `promtool` (Debian: apt-get install prometheus); where they are not, it says so
and ends with 0.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import urllib3

from node.cli.local import NotInTime, wait_for
from node.cli.ports import free_ports
from testkit.cluster import Cluster

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
RULES: Final = DEPLOY / "prometheus" / "rota.rules.yml"
BOARD: Final = DEPLOY / "grafana" / "rota.json"
TOKEN: Final = "a-token-of-the-scraper"
SCRAPED_S: Final = 1
DEADLINE_S: Final = 60.0


class Prometheus:
    """A Prometheus that scrapes `targets`, with the rules made impatient: a rule's patience is promtool's to test."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool = urllib3.PoolManager(retries=False)

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer of its API. Raises `AssertionError` if it refuses."""
        answer = self._pool.request("GET", self._url + path, fields=query).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def ready(self) -> bool:
        """Whether every target has been scraped."""
        try:
            if self._pool.request("GET", f"{self._url}/-/ready").status != 200:
                return False
            targets = self.ask("/api/v1/targets")["activeTargets"]
        except urllib3.exceptions.HTTPError:
            return False
        return bool(targets) and all(target["health"] == "up" for target in targets)

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        return {one["labels"]["alertname"] for one in self.ask("/api/v1/alerts")["alerts"] if one["state"] == "firing"}

    def series(self, expression: str) -> int:
        """How many series an expression gives now. Raises `AssertionError` if Prometheus cannot evaluate it."""
        return len(self.ask("/api/v1/query", query=expression)["result"])


def impatient(rules: str) -> str:
    """The rules with each `for` a second, and nothing overdue for longer than three.

    >>> impatient("expr: max(rota_overdue_seconds) > 300\\n  for: 15m")
    'expr: max(rota_overdue_seconds) > 3\\n  for: 1s'
    """
    return re.sub(r"(rota_overdue_seconds.*\)) > 300", r"\1 > 3", re.sub(r"\bfor: \w+", "for: 1s", rules))


@contextmanager
def prometheus(folder: Path, cluster: Cluster) -> Iterator[Prometheus]:
    """A Prometheus with its data in `folder`, until the block ends."""
    (folder / "rules.yml").write_text(impatient(RULES.read_text()))
    (folder / "token").write_text(TOKEN)
    targets = [cluster.url(name).removeprefix("http://") for name in cluster.names]
    config = {
        "global": {"scrape_interval": f"{SCRAPED_S}s", "evaluation_interval": f"{SCRAPED_S}s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {
                "job_name": "rota",
                "authorization": {"credentials_file": "token"},
                "static_configs": [{"targets": targets}],
            }
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    [port] = free_ports(1)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        running = Prometheus(f"http://127.0.0.1:{port}")
        wait_for("Prometheus has scraped every node", running.ready, DEADLINE_S)
        yield running
    finally:
        process.kill()
        process.wait()


def scenario(cluster: Cluster, seen: Prometheus) -> None:
    """What the rules are about, one after the other. Raises `NotInTime` or `AssertionError`."""

    def fires(*names: str) -> None:
        wait_for(f"these fire: {', '.join(names)}", lambda: set(names) <= seen.firing(), DEADLINE_S)
        print(f"  {', '.join(names)}: firing", flush=True)

    def silent(*names: str) -> None:
        wait_for(f"these are silent: {', '.join(names)}", lambda: not set(names) & seen.firing(), DEADLINE_S)

    names = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    silent(*names)
    text = cluster.ask("GET", "/metrics").body
    linted = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert not linted.returncode, linted.stderr.decode()
    print("  all is well: no alert fires, and the names of the metrics are as Prometheus would have them")

    assert cluster.ask("PUT", "/v1/tasks/fails", json=FAILING).status == 201
    cluster.ask("POST", "/v1/tasks/fails/runs", json={})
    fires("RotaRunFailed", "RotaLate")

    leader = cluster.leader()
    first, second = [name for name in cluster.names if name != leader]
    cluster.kill(first)
    fires("RotaMemberDown", "RotaMajorityAtRisk")
    silent("RotaNoQuorum")
    cluster.ask("PUT", "/v1/tasks/each-second", json=EACH_SECOND)
    cluster.kill(second)
    fires("RotaNoQuorum", "RotaOverdue")
    cluster.mend()
    silent("RotaNoQuorum", "RotaMajorityAtRisk", "RotaMemberDown", "RotaOverdue", "RotaNoLease")
    print("  silent again once the members are back")
    wait_for("each query of the board has a series", lambda: all(map(seen.series, panels())), DEADLINE_S)
    print(f"  the board: each of its {len(panels())} queries has a series")


FAILING: Final = {
    "kind": "probe",
    "params": {"fail_attempts": 9},
    "retry": {"attempts": 1},
    "deadlines": {"finish_within_s": 1},
}
EACH_SECOND: Final = {"kind": "probe", "schedule": {"every_s": 1}}


def panels() -> list[str]:
    """The queries of the board, as Grafana would ask them."""
    board = json.loads(BOARD.read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [one["expr"] for one in board["annotations"]["list"]]
    return [one.replace("$job", "rota").replace("$__rate_interval", "1m") for one in asked]


def main() -> None:
    """Check the rules by promtool, then play."""
    if lacking := [name for name in ("prometheus", "promtool") if shutil.which(name) is None]:
        print(f"monitoring-test: NOT TESTED: {' and '.join(lacking)} not found (Debian: apt-get install prometheus)")
        return
    for words in (("check", "rules", str(RULES)), ("test", "rules", str(RULES.with_suffix(".test.yml")))):
        if subprocess.run(["promtool", *words], check=False).returncode:
            sys.exit(f"monitoring-test: FAILED: promtool {' '.join(words)}")
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder), env={"ROTA_TOKEN": TOKEN}) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        scraper = Path(folder) / "prometheus"
        scraper.mkdir()
        with prometheus(scraper, cluster) as seen:
            try:
                scenario(cluster, seen)
            except (NotInTime, AssertionError) as error:
                print(f"firing: {sorted(seen.firing())}")
                sys.exit(f"monitoring-test: FAILED: {error}")
    print("monitoring-test: all of it held")


if __name__ == "__main__":
    main()
