"""A cluster with something of everything that the page shows: for the tests, and for the pictures in docs/images."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from node.cli.local import wait_for
from node.client import path
from testkit.cluster import Cluster

TOKEN: Final = "a token of an operator"
READ_TOKEN: Final = "a token of a reader"
ENV: Final = {"ROTA_TOKEN": TOKEN, "ROTA_READ_TOKEN": READ_TOKEN}

_COPY: Final = "for n in $(seq 400); do rota ctx progress $n 400 files; echo copied part-$n.parquet; sleep 3; done"


def fill(cluster: Cluster) -> dict[str, str]:
    """Register tasks and run some. Returns the last run of each task that was run, once each has come so far."""
    uploads = cluster.folder / "uploads"
    uploads.mkdir()
    for number in range(12):
        (uploads / f"photo-{number:02}.jpg").write_bytes(bytes(2000 * (number + 1)))
    folder = {"type": "folder", "path": str(uploads), "shared": True}
    backup = {"source": folder, "destination": f"file://{cluster.folder / 'backups'}", "keep": 7}
    nightly = {"cron": "30 2 * * *", "timezone": "Europe/Paris"}
    _put(cluster, "uploads", "backup", backup, schedule=nightly)
    sundays = {"cron": "0 4 * * 0", "timezone": "Europe/Paris"}
    _put(cluster, "photos-weekly", "backup", backup, schedule=sundays, set="site", labels={"team": "media"})
    _command(cluster, "orders-to-lake", "sleep 0.3; echo 1,204 rows", schedule={"every_s": 900})
    _command(cluster, "customers-to-lake", "echo 310 rows", schedule={"every_s": 1800})
    made = cluster.ask("PATCH", "/v1/settings", json={"pools": {"warehouse": 1}})
    assert made.status == 200, made.body
    _command(cluster, "clickstream", _COPY, schedule={"cron": "0 */4 * * *"}, uses={"warehouse": 1})
    twice = {"attempts": 2, "backoff_s": 0}
    morning, by = {"cron": "15 6 * * *"}, {"finish_within_s": 1}
    _command(cluster, "currency-rates", _FAILS, schedule=morning, retry=twice, deadlines=by)
    _command(cluster, "train-embeddings", "sleep 60", schedule={"cron": "0 1 * * *"}, group={"gpu": "a100"})
    _command(cluster, "month-end", "true", schedule={"cron": "0 5 1 * *", "timezone": "America/New_York"})
    _command(cluster, "reindex-search", "true")
    _command(cluster, "invoices", _COUNTS, schedule=nightly, overlap="allow")
    cluster.ask("POST", path("v1", "tasks", "month-end", "pause"), json={})
    invoices = [cluster.run("invoices") for _ in range(12)]
    ended = {name: cluster.run(name) for name in ("uploads", "orders-to-lake", "customers-to-lake", "currency-rates")}
    ended["invoices"] = invoices[-1]
    ended["given"] = cluster.run("reindex-search", params={"argv": ["echo", "products"], "cwd": "/"})
    for run_id in (*ended.values(), *invoices):
        cluster.wait_for_run(run_id)
    ended["backfill"] = _past_rates(cluster)
    ended["sales-join"] = _night(cluster)
    ended |= _between(cluster)
    ended["clickstream"] = cluster.run("clickstream")
    cluster.wait_for_attempt(ended["clickstream"], 1)
    return ended


_COUNTS: Final = (
    "n=$(date +%N | tail -c 4); echo reading since the cursor; sleep 0.${n#0}; rota ctx result rows=1${n} batches=3; "
    "echo committed"
)
_FAILS: Final = (
    "echo GET https://rates.internal/latest; echo HTTP 502 from the proxy; "
    "echo 'no rates for 2 of 31 currencies: XAU, XAG' >&2; exit 3"
)


def _past_rates(cluster: Cluster) -> str:
    """Run `currency-rates` for the days of a month, of which five fail; then it is paused. Returns a run of it."""
    since = (datetime.now(UTC) - timedelta(days=31)).isoformat()
    begun = cluster.ask("POST", path("v1", "tasks", "currency-rates", "backfills"), json={"from": since})
    at = path("v1", "backfills", str(begun.json["number"]))
    wait_for("the backfill to be paused", lambda: cluster.get(at)["status"] == "paused", 60)
    ran = cluster.ask("GET", path("v1", "tasks", "currency-rates", "runs")).json["items"]
    return next(str(one["run_id"]) for one in ran if one["backfill"] is not None)


def _night(cluster: Cluster) -> str:
    """Register tasks that come after one another, and run them; one fails. Returns the run of `sales-join`."""
    _command(cluster, "sales-ingest", "echo 1,204 rows", schedule={"cron": "0 1 * * *"})
    for name in ("sales-orders", "sales-returns"):
        _command(cluster, name, "echo cleaned", after=["sales-ingest"])
    _command(cluster, "sales-rates", _FAILS, after=["sales-ingest"], retry={"attempts": 1})
    _command(cluster, "sales-join", "true", after=["sales-orders", "sales-returns", "sales-rates"])
    _command(cluster, "sales-report", "true", after=["sales-join"])
    _command(cluster, "sales-alarm", "true", after=[{"task": "sales-rates", "on": "failed"}])
    _command(cluster, "sales-tidy", "true", after=[{"task": "sales-join", "on": "ended"}])
    cluster.ask("POST", path("v1", "tasks", "sales-ingest", "runs"), json={"downstream": True})
    ends = ("sales-alarm", "sales-tidy", "sales-report")
    wait_for("the tasks after sales-ingest", lambda: all(_last(cluster, name) for name in ends), 60)
    return str(_last(cluster, "sales-join")["run_id"])


def _between(cluster: Cluster) -> dict[str, str]:
    """Register tasks with calendars, on each member, with a template and in a set, and a blackout that holds none.

    Returns the last run of those that were run.
    """
    today = datetime.now(UTC).date()
    closed = [(today + timedelta(days=days)).isoformat() for days in (2, 3)]
    made = cluster.ask("PUT", path("v1", "calendars", "closing"), json={"dates": closed})
    assert made.status == 201, made.body
    early = {"cron": "40 4 * * *", "timezone": "Europe/Paris"}
    _command(cluster, "payroll", "true", schedule=early, calendar={"skip": ["closing", "holidays/DE-BY"]})
    _command(cluster, "statements", "true", schedule=early, calendar={"skip": ["closing"], "on_skip": "next"})
    for name in ("dump-orders", "dump-stock"):
        _command(cluster, name, "true", schedule={"cron": "20 1 * * *"}, uses={"warehouse": 1}, set="dumps")
    _command(cluster, "dump-check", "true", after=["dump-orders", "dump-stock"], set="dumps")
    _command(cluster, "dump-lists", "true", schedule={"every_s": 20}, enabled=False, set="dumps")
    _command(cluster, "clean-tmp", "echo 3 files", each=True, schedule={"cron": "10 3 * * *"})
    argv = ["echo", "sales of {{ nominal | date }}"]
    _put(cluster, "day-of-sales", "command", {"argv": argv}, template=True, schedule={"cron": "0 5 * * *"})
    ends = {"begins": (datetime.now(UTC) + timedelta(hours=30)).isoformat()}
    ends |= {"ends": (datetime.now(UTC) + timedelta(hours=35, minutes=30)).isoformat()}
    held = cluster.ask("PUT", path("v1", "blackouts", "move-racks"), json={**ends, "labels": {"rack": "b"}})
    assert held.status == 200, held.body
    ran = {"day-of-sales": cluster.run("day-of-sales"), "clean-tmp": cluster.run("clean-tmp")}
    cluster.wait_for_run(ran["day-of-sales"])

    def here() -> str | None:
        """The run on the member that is asked: another one may be down when its log is looked at."""
        runs = cluster.all(path("v1", "tasks", "clean-tmp", "runs"))
        ended = (run["run_id"] for run in runs if (run["member"], run["state"]) == ("node-1", "succeeded"))
        return next(ended, None)

    ran["clean-tmp"] = wait_for("clean-tmp on node-1", here, 60)
    return ran


def _last(cluster: Cluster, task: str) -> Any:
    return cluster.ask("GET", path("v1", "tasks", task)).json["last"]


def _command(cluster: Cluster, name: str, script: str, **spec: Any) -> None:
    _put(cluster, name, "command", {"argv": ["sh", "-c", script]}, **spec)


def _put(cluster: Cluster, name: str, kind: str, params: dict[str, Any], **spec: Any) -> None:
    reply = cluster.ask("PUT", path("v1", "tasks", name), json={"kind": kind, "params": params, **spec})
    assert reply.status in (200, 201), json.dumps(reply.json)
