"""The backups of a task: what they need and whether they are proven; one is restored into a new place by the form."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from node.cli.local import wait_for
from testkit.cluster import Cluster
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser


def test_a_backup_is_restored_into_a_new_place_by_the_form(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    tab = tab_of("/tasks/uploads/backups")
    page = tab.page
    expect(page.get_by_role("img", name="1 backup")).to_be_visible()
    expect(page.get_by_role("table")).to_contain_text("not yet")
    page.get_by_role("link", name="Restore the backup").first.click()
    text = page.get_by_label("Definition")
    assert f"target: {cluster.folder}/uploads-restored\n" in text.input_value()
    target = f"{cluster.folder}/new/uploads"  # no attempt may write beside the folders of the nodes
    text.fill(text.input_value().replace(f"{cluster.folder}/uploads-restored", target))
    page.get_by_role("button", name="Check").click()
    page.get_by_role("button", name="Save the new task").click()
    expect(page.get_by_role("heading", name="uploads-restored")).to_be_visible()
    page.get_by_role("button", name="Run uploads-restored").first.click()
    asked = {"task": "uploads-restored", "state": "succeeded"}
    run = wait_for("the restore", lambda: next(iter(cluster.get("/v1/runs", **asked)["items"]), None), 60)
    assert run["result"]["target"] == target
    made, restored = (cluster.folder / name for name in ("uploads", "new/uploads"))
    assert {path.name: path.read_bytes() for path in made.iterdir()} == {
        path.name: path.read_bytes() for path in restored.iterdir()
    }
    tab.go(f"/runs/{run['run_id']}")
    expect(page.locator("#log")).to_contain_text("reading folder.tar.zst")
