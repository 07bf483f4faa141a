"""`make demo`: three nodes run real work, one of them is killed in the middle of it, and nothing is lost.

Runs unattended; exits with 0, or prints what went wrong and exits with 1. `--keep` leaves the cluster running.
"""

import argparse
import json
import os
import secrets
import shutil
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from examples.demo import delays, flights, proof
from examples.demo.postgres import PostgresFailed, Server, postgres_server
from examples.demo.run_progress import RunProgress
from node.cli.local import LocalCluster, NotInTime, wait_for
from node.client import ApiProblem, Unreachable, path
from tasks.backup.restore import restore_backup
from tasks.backup.verify import verify

FOLDER: Final = Path(".demo").absolute()
READY_S: Final = 120.0
"""How long nodes may take to be ready: seconds, but minutes on a machine with much else to do."""
FINISH_S: Final = 600.0
"""How long the backup and the ETL may take: seconds, but minutes on a machine with much else to do."""
FINAL: Final = ("succeeded", "failed", "cancelled", "timed_out", "abandoned")
console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)


class DemoFailed(Exception):
    """A step had another outcome than it should have."""


def main() -> None:
    """Run the demo; exits with 0 or 1."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    keep = parser.parse_args().keep
    began_s = time.monotonic()
    end_kept_processes()
    shutil.rmtree(FOLDER, ignore_errors=True)
    try:
        with ExitStack() as stack:
            cluster, server = run_demo(stack)
            if keep:
                leave_running(stack.pop_all(), cluster, server)
    except (DemoFailed, proof.NotProven, NotInTime, ApiProblem, Unreachable, PostgresFailed) as error:
        console.print(f"\n[bold red]The demo failed:[/] {error}\nThe nodes' logs are in {FOLDER}/nodes/*.log")
        sys.exit(1)
    console.print(f"\n[bold green]All of it held.[/] {time.monotonic() - began_s:.0f} s")


def run_demo(stack: ExitStack) -> tuple[LocalCluster, Server]:
    """Run the demo's chapters; returns the cluster and the database server."""
    chapter("A year of flights, and a database to back up")
    files = flights.write_monthly_files(FOLDER / "flights")
    password = secrets.token_urlsafe(12)
    server = stack.enter_context(postgres_server(password))
    server.sql("postgres", "CREATE DATABASE shop; CREATE DATABASE warehouse; CREATE DATABASE restored;")
    rows = flights.load(lambda text: server.sql("shop", text))
    say(f"{len(files)} CSV files with {flights.FLIGHTS:,} flights")
    say(f"PostgreSQL with {sum(rows.values()):,} rows in {len(rows)} tables")

    chapter("Three nodes agree")
    (FOLDER / "secrets").mkdir()
    (FOLDER / "secrets" / "pg_password").write_text(password)
    env = {"ROTA_SECRETS_DIR": str(FOLDER / "secrets"), "ROTA_SPARK_MASTER": "local[2]"}
    cluster = stack.enter_context(LocalCluster(FOLDER / "nodes", 3, env=env))
    cluster.start()
    cluster.wait_until_ready(deadline_s=READY_S)
    show_members(cluster)

    chapter("Tasks are registered; every node works out who owns each")
    register(cluster, server)
    show_owners(cluster)

    chapter("The ingest runs on Spark, and its node is killed in the middle of it")
    run = survive(cluster)
    proof.all_flights_once(FOLDER / "table", [FOLDER / "flights"])
    say(f"{flights.FLIGHTS:,} rows are in the Delta table, none twice; attempts: {attempts(run)}")

    chapter("Flights, planes and weather are joined on Spark; delays by carrier and day go into another database")
    for change in (delays.nothing, delays.correct):
        what = change(server)
        done = finish(cluster, start(cluster, "delays"))
        say(f"{what}: {done['result']['rows']:,} rows by {done['node']}; {delays.equal_to_plain_sql(server)}")

    chapter("The database is backed up, restored, and compared")
    done = finish(cluster, start(cluster, "shop-backup"))
    say(f"{done['task']} ran on {done['node']}: {done['result']['stored_bytes']:,} bytes at {done['result']['url']}")
    compare(server, password, done["result"]["url"])

    chapter("The dead node comes back and owns its tasks again")
    dead = next(name for name in cluster.names if name not in cluster.running())
    cluster.start(dead)
    cluster.wait_until_ready(dead, deadline_s=READY_S)
    show_owners(cluster)
    return cluster, server


def register(cluster: LocalCluster, server: Server) -> None:
    """Four tasks: an ingest, an ETL, a backup, and a command that runs every five seconds."""
    specs: list[dict[str, Any]] = [
        {
            "name": "flights",
            "kind": "ingest",
            "params": {
                "source": f"{FOLDER}/flights/*.csv",
                "format": "csv",
                "null_value": "NA",
                "table": f"{FOLDER}/table",
                "shared": True,  # the three nodes are on this machine
                "batch_files": 2,
            },
        },
        {
            "name": "shop-backup",
            "kind": "backup",
            "schedule": {"cron": "0 3 * * *", "timezone": "Europe/Paris"},
            "params": {
                "source": {"type": "postgres", "url": server.url("shop"), "password": {"secret": "pg_password"}},
                "destination": f"file://{FOLDER}/backups",
            },
        },
        delays.task(server),
        {"name": "tick", "kind": "command", "schedule": {"every_s": 5}, "params": {"argv": ["date"]}},
    ]
    cluster.client.call("POST", "/v1/tasks", body=specs)


def survive(cluster: LocalCluster) -> dict[str, Any]:
    """Run the ingest, kill -9 its node once a third of the files is in the table, and see it finished elsewhere."""
    run_id = start(cluster, "flights")
    with RunProgress(cluster, run_id, console) as shown:
        running = shown.wait_for("a third of the files is ingested", far_enough)
        victim = running["node"]
        killed_s = time.time()
        cluster.kill(victim)
        shown.say(f"[bold red]kill -9 {victim}[/]: {running['checkpoint']['files']} of 12 files were in the table")
        taken = shown.wait_for("another node takes over", lambda run: taken_over(run, victim))
        seconds = proof.seconds_between(killed_s, taken["claimed_at"])
        took = f"{seconds:.2f} s after the kill, with token {taken['token']}"
        shown.say(f"[bold green]{taken['node']} has claimed it[/], {took}")
        run = shown.wait_for("the ingest ends", ended)
    if run["state"] != "succeeded":
        raise DemoFailed(f"the ingest {run['state']}: {run['error']}")
    return run


def far_enough(run: dict[str, Any]) -> dict[str, Any] | None:
    """The run, if a third of its files is in the table."""
    if run["state"] in FINAL:
        raise DemoFailed(f"the ingest {run['state']} before its node could be killed: {run['error']}")
    return run if (run["checkpoint"] or {}).get("files", 0) >= 4 else None


def taken_over(run: dict[str, Any], victim: str) -> dict[str, Any] | None:
    """The run, if another node has it."""
    return run if run["node"] not in (None, victim) and run["attempt"] == 2 else None


def ended(run: dict[str, Any]) -> dict[str, Any] | None:
    """The run, if it has ended."""
    return run if run["state"] in FINAL else None


def start(cluster: LocalCluster, task: str) -> str:
    """Run a task now; the run's id."""
    run_id: str = cluster.client.call("POST", path("v1", "tasks", task, "runs")).json["run_id"]
    return run_id


def finish(cluster: LocalCluster, run_id: str) -> dict[str, Any]:
    """Wait until a run has succeeded."""
    run = wait_for(f"{run_id} ends", lambda: ended(cluster.client.get(path("v1", "runs", run_id))), FINISH_S)
    if run["state"] != "succeeded":
        raise DemoFailed(f"{run_id} {run['state']}: {run['error']}")
    return run


def compare(server: Server, password: str, url: str) -> None:
    """Verify the backup, restore it into an empty database, and compare every table."""
    report = verify(url)
    if not report.ok:
        raise DemoFailed(f"the backup is damaged: {'; '.join(report.problems)}")
    restore_backup(url, server.url("restored"), password=password)
    before = flights.fingerprints(lambda text: server.sql("shop", text))
    after = flights.fingerprints(lambda text: server.sql("restored", text))
    if before != after:
        raise DemoFailed(f"the restored database differs: {before} before, {after} after")
    for table, print_ in after.items():
        say(f"{table:9} {print_}  the same in both")


def attempts(run: dict[str, Any]) -> str:
    """The attempts of a run, as text."""
    return ", then ".join(f"{one['attempt']} on {one['node']} ({one['state']})" for one in run["attempts"])


def show_members(cluster: LocalCluster) -> None:
    """Print the members."""
    state = cluster.client.get("/v1/cluster")
    for member in state["members"]:
        role = "leads" if member["id"] == state["leader"] else "follows"
        say(f"{member['id']} is {member['status']} and {role}  {member['url']}  offers {', '.join(member['kinds'])}")


def show_owners(cluster: LocalCluster) -> None:
    """Print where each task runs, and why."""
    table = Table("rota where", "owner", "then", "because", box=None, pad_edge=False, header_style="bold")
    for task in ("flights", "delays", "shop-backup", "tick"):
        answer = cluster.client.get(path("v1", "tasks", task, "owner"))
        because = ", ".join(f"{step['node']}: {step['verdict']}" for step in answer["because"])
        table.add_row(task, answer["owner"], " > ".join(answer["preference"]), because)
    console.print(table)


def chapter(title: str) -> None:
    """Print a heading."""
    console.print(f"\n[bold]{title}[/]")


def say(text: str) -> None:
    """Print one line."""
    console.print(f"  {text}")


def leave_running(_open: ExitStack, cluster: LocalCluster, server: Server) -> None:
    """Record the processes that are left running, so that the next demo can end them."""
    postgres = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    pids = [*(cluster.pid(name) for name in cluster.running()), postgres]
    (FOLDER / "kept.json").write_text(json.dumps(pids))
    url = cluster.url(cluster.names[0])
    say_where = f"export ROTA_URL={url} ROTA_TOKEN_FILE={cluster.token_file}"
    console.print(f"\nLeft running: {say_where}; .venv/bin/rota status   (or open {url})")
    console.print(f"The next make demo ends it, or: kill {' '.join(map(str, pids))}")


def end_kept_processes() -> None:
    """End the processes that an earlier demo left running, if their ids still belong to them."""
    try:
        pids: list[int] = json.loads((FOLDER / "kept.json").read_text())
    except (OSError, ValueError):
        return
    for pid in pids:
        cmdline = Path(f"/proc/{pid}/cmdline")
        if cmdline.exists() and (b"node.cli.entry" in cmdline.read_bytes() or b"rota-pg-" in cmdline.read_bytes()):
            os.kill(pid, signal.SIGTERM)
            wait_for(f"process {pid} ends", lambda cmdline=cmdline: not cmdline.exists() or not cmdline.read_bytes())  # type: ignore[misc]


if __name__ == "__main__":
    main()
