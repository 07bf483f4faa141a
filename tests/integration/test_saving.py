"""A cluster's own state goes into a file, and from it into a new cluster (docs/how-to/recover.md)."""

from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from node.state.channel import Channel
from testkit.cluster import Cluster
from testkit.command import Rota

pytestmark = pytest.mark.integration

CHANNEL = Channel.model_validate(
    {"kind": "apprise", "url": {"secret": "mail"}, "quiet": {"from": "22:00", "to": "07:00"}}
).plain()

LARGE = "x" * 200_000
"""So long a param that a file with several takes several entries."""


@pytest.mark.more
def test_a_new_cluster_takes_over_what_another_was_asked(tmp_path: Path) -> None:
    file = tmp_path / "rota.saved"
    with Cluster(_folder(tmp_path, "old")) as old:
        old.start()
        old.wait_until_whole()
        tasks, settings = _busy(old)
        rota = Rota(old.url("node-2"))
        told = rota("cluster", "save", str(file))
        assert (told.code, f"{len(tasks)} tasks" in told.out) == (0, True), told
        assert "1 runs that were active then" in told.out
        assert not list(tmp_path.glob("*.partial"))
        for name in old.names[1:]:
            old.kill(name)
        wait_for("the loss is noticed", lambda: not old.get("/v1/cluster", "node-1")["quorum"])
        assert Rota(old.url("node-1"))("cluster", "save", str(tmp_path / "never")).code == 3
        assert not list(tmp_path.glob("never*"))
    assert rota("cluster", "load", str(file)).code == 3, "nobody is there"
    shown = rota("cluster", "show", str(file))
    assert (shown.code, "hourly  probe, version 2, paused, never ran" in shown.out) == (0, True), shown.out

    with Cluster(_folder(tmp_path, "new")) as new:
        new.start()
        new.wait_until_whole()
        rota = Rota(new.url("node-3"))
        changed = bytearray(file.read_bytes())
        changed[len(changed) // 2] ^= 4
        (tmp_path / "damaged").write_bytes(changed)
        damaged = rota("cluster", "load", str(tmp_path / "damaged"))
        assert (damaged.code, "damaged" in damaged.err) == (1, True)
        new.register("of-its-own")
        refused = rota("cluster", "load", str(file))
        assert (refused.code, "not from this file: of-its-own" in refused.err) == (1, True)
        assert new.ask("DELETE", "/v1/tasks/of-its-own").status == 204

        assert rota("cluster", "load", str(file), "--json").json == {"loaded": len(tasks), "there_already": 0}
        assert {task["name"]: task for task in new.all("/v1/tasks", "node-1", consistent="true")} == tasks
        assert new.get("/v1/settings") == settings
        assert new.get("/v1/channels/ops")["definition"] == CHANNEL
        assert new.get("/v1/calendars/closing")["dates"] == ["2026-12-24"]
        assert not new.all("/v1/runs"), "something ran that was not due"
        again = rota("cluster", "load", str(file), "--json")
        assert again.json == {"loaded": 0, "there_already": len(tasks)}
        new.check()


def _folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name


def _busy(cluster: Cluster) -> tuple[dict[str, Any], Any]:
    """Tasks of all sorts, and settings: what is told of them in the end."""
    assert cluster.ask("PUT", "/v1/channels/ops", json=CHANNEL).status == 201
    notes, held = cluster.notes(), cluster.notes()
    notes.let_go()
    cluster.register("gone")
    cluster.ask("POST", "/v1/tasks", json=[{"name": f"t-{n:02}", "kind": "probe", "weight": 1 + n} for n in range(30)])
    for number in range(6):
        cluster.register(f"large-{number}", params={"says": LARGE})
    cluster.register("hourly", schedule={"every_s": 3600})
    cluster.register("hourly", schedule={"every_s": 3601})
    assert cluster.ask("PUT", "/v1/calendars/closing", json={"dates": ["2026-12-24"]}).status == 201
    paris = {"cron": "0 3 * * *", "timezone": "Europe/Paris"}
    cluster.register("daily", schedule=paris, calendar={"skip": ["closing", "holidays/FR"]}, pin="node-2")
    cluster.register("done", params=notes.params)
    cluster.register("held", params=held.params)
    cluster.wait_for_run(cluster.run("done"))
    cluster.run("held")
    held.wait("beat")
    assert cluster.ask("POST", "/v1/tasks/hourly/pause").status == 200
    assert cluster.ask("DELETE", "/v1/tasks/gone").status == 204
    settings = cluster.ask("PATCH", "/v1/settings", json={"balance_slack": 0.25, "history_days": 3}).json
    return {task["name"]: task for task in cluster.all("/v1/tasks", consistent="true")}, settings
