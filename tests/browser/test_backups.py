"""The backups of a task: what they need and whether they are proven; one is restored into a new place by the form."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from node.cli.local import wait_for
from testkit.cluster import Cluster
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser

SUCCEEDED = "?task=uploads-restored&state=succeeded"


def test_a_backup_is_restored_into_a_new_place_by_the_form(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    page = tab_of("/tasks/uploads/backups").page
    expect(page.get_by_role("img", name="1 backup")).to_be_visible()
    expect(page.get_by_role("table")).to_contain_text("not yet")
    page.get_by_role("link", name="Restore the backup").first.click()
    proposed = page.get_by_label("Definition").input_value()
    target = f"{cluster.folder}/uploads-restored"
    assert f"target: {target}\n" in proposed
    page.get_by_role("button", name="Check").click()
    page.get_by_role("button", name="Save the new task").click()
    expect(page.get_by_role("heading", name="uploads-restored")).to_be_visible()
    page.get_by_role("button", name="Run uploads-restored").first.click()
    run = wait_for("the restore", lambda: next(iter(cluster.get(f"/v1/runs{SUCCEEDED}")["items"]), None), 60)
    assert run["result"]["target"] == target
    made, restored = (cluster.folder / name for name in ("uploads", "uploads-restored"))
    assert {path.name: path.read_bytes() for path in made.iterdir()} == {
        path.name: path.read_bytes() for path in restored.iterdir()
    }
    page.goto(f"{page.url.partition('/tasks')[0]}/runs/{run['run_id']}")
    log = page.get_by_role("log")
    expect(log).to_contain_text("reading folder.tar.zst")
