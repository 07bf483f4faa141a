"""Params by occurrence on real nodes, one of which is killed meanwhile: made once, and handed on from task to task."""

import json
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.more]

NOTES = (
    "import json, os, subprocess, sys, time\n"
    "path, given = sys.argv[1], sys.argv[2:]\n"
    "env = {name: os.environ[name] for name in ('ROTA_NOMINAL', 'ROTA_WINDOW_START', 'ROTA_WINDOW_END')}\n"
    "with open(path, 'a') as file:\n"
    "    print(json.dumps({'given': given, **env}), file=file)\n"
    "while os.environ['ROTA_TASK'] == 'slow' and not os.path.exists(path + '.go'):\n"
    "    time.sleep(0.05)\n"
    "subprocess.run(['rota', 'ctx', 'result', 'rows=7', 'day=' + given[0]], check=True)\n"
)
"""Notes what it was given, and leaves two figures; as the task `slow`, only once a file says so."""


def argv(path: Path, *given: str) -> dict[str, Any]:
    return {"argv": ["python3", "-c", NOTES, str(path), *given]}


def noted(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_each_occurrence_has_its_params_whatever_dies(tmp_path: Path) -> None:
    folder = tmp_path / "noted"
    folder.mkdir()
    loads, checks, slow = (folder / name for name in ("loads", "checks", "slow"))
    window = ("{{ window_start }}", "{{ window_end }}")
    with Cluster(tmp_path, 3) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        five = {"cron": "*/5 * * * * *"}
        cluster.register("load", "command", template=True, schedule=five, catch_up="all", params=argv(loads, *window))
        of_load = ("{{ nominal }}", "{{ after.load.rows | text }}", "{{ after.load.day | text }}")
        cluster.register("check", "command", template=True, after=["load"], params=argv(checks, *of_load))
        cluster.register("slow", "command", template=True, params=argv(slow, "{{ nominal }}", "{{ nominal | date }}"))
        run_id = cluster.run("slow", fire_at="2026-11-20T12:00:00Z")
        wait_for("its first attempt", lambda: noted(slow), 30)
        wait_for("two checks", lambda: len(noted(checks)) >= 2, 60)
        holder = cluster.run_of(run_id)["node"]
        left = cluster.others(holder)[0]
        cluster.kill(holder)
        wait_for("a second attempt", lambda: len(noted(slow)) == 2, 60)
        (folder / "slow.go").touch()
        run = cluster.wait_for_run(run_id, "succeeded", node=left, deadline_s=60)
        assert run["params"]["argv"][-2:] == ["2026-11-20T12:00:00Z", "2026-11-20"]
        first, second = noted(slow)
        assert first == second, "who takes over does the same"
        assert (first["ROTA_NOMINAL"], first["ROTA_WINDOW_START"]) == ("2026-11-20T12:00:00Z", "")
        before = len(noted(checks))
        wait_for("more checks", lambda: len(noted(checks)) >= before + 2, 60)
        done = {run["fire_at"]: run for run in cluster.all("/v1/tasks/load/runs", left) if run["state"] == "succeeded"}
    for one in noted(loads):
        assert one["given"] == [one["ROTA_WINDOW_START"], one["ROTA_WINDOW_END"]]
        assert one["ROTA_WINDOW_END"] == one["ROTA_NOMINAL"] > one["ROTA_WINDOW_START"]
    ends = {one["ROTA_WINDOW_END"] for one in noted(loads)}
    starts = sorted(one["ROTA_WINDOW_START"] for one in noted(loads))
    assert set(starts[1:]) <= ends, "windows meet"
    for one in noted(checks):
        nominal, rows, day = one["given"]
        assert rows == "7" and nominal == one["ROTA_WINDOW_END"] and day == one["ROTA_WINDOW_START"]
        assert nominal in done or nominal in ends
