"""The open page follows the cluster: nothing here loads it again."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from testkit.cluster import Cluster
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser


def test_what_happens_is_seen_without_reloading(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    notes = cluster.notes()
    cluster.register("watched", params=notes.params)
    overview = tab_of("/", node="node-1")
    tasks = tab_of("/tasks?q=watched", node="node-2")
    for tab in (overview, tasks):
        tab.mark()
    cluster.run("watched", "node-3")
    running = overview.page.get_by_role("region", name="Running now")
    expect(running).to_contain_text("watched")
    expect(tasks.row("watched")).to_contain_text("running")
    notes.let_go()
    expect(running).not_to_contain_text("watched")
    expect(tasks.row("watched")).to_contain_text("succeeded")
    assert overview.unreloaded()
    assert tasks.unreloaded()


def test_a_run_goes_on_elsewhere_when_its_node_is_killed(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    notes = cluster.notes()
    name = next(
        task
        for number in range(50)
        if cluster.register(task := f"moving-{number}", params={**notes.params, "says": "at work"})
        and cluster.owner_of(task) != "node-1"
        and cluster.owner_of(task) != cluster.leader()
    )
    tab = tab_of("/", node="node-1")
    run_id = cluster.run(name)
    victim = cluster.wait_for_run(run_id, "running")["node"]
    watching = tab_of(f"/runs/{run_id}", node="node-1")
    watching.expected_error = "503|INCOMPLETE"  # the log of a member that is down
    for each in (tab, watching):
        each.mark()
    expect(watching.page.get_by_role("log")).to_contain_text("at work")
    row = tab.page.get_by_role("region", name="Running now").get_by_role("row").filter(has_text=name)
    expect(row).to_contain_text(victim)
    cluster.kill(victim)
    expect(row).to_contain_text("attempt 2")
    expect(row).not_to_contain_text(victim)
    expect(watching.page.locator("#log-said")).to_contain_text("attempt 2")
    expect(watching.page.get_by_role("log")).to_contain_text("at work")
    expect(watching.page.locator("#now")).to_contain_text(f"{victim} was lost")
    expect(tab.page.locator("#verdict")).to_contain_text(f"{victim} is down")
    assert tab.unreloaded()
    assert watching.unreloaded()
    notes.let_go()
    expect(watching.page.locator("#now")).to_contain_text("Run again")
    cluster.mend()
    expect(tab.page.locator("#verdict")).not_to_contain_text(f"{victim} is down")
    assert tab.unreloaded()
