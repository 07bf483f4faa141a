"""What an open page says when what it shows is not fresh any more: nothing old may look new."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from node.client import path
from testkit.cluster import Cluster
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser


def test_a_node_that_stands_still_is_said_to_and_is_caught_up_with(
    cluster: Cluster, tab_of: Callable[..., Tab]
) -> None:
    """Its connection stays open: the browser hears of nothing."""
    tab = tab_of("/", node="node-3")
    tab.expected_error = "ERR_"
    tab.mark()
    said = tab.page.locator("#stale")
    expect(said).to_be_hidden()
    cluster.pause("node-3")
    try:
        expect(said).to_contain_text("node-3 is not heard")
        expect(tab.page.locator("#live")).to_contain_text("not live")
        tab.axe()
    finally:
        cluster.mend()
    expect(said).to_be_hidden()
    expect(tab.page.locator("#live")).to_have_text("live")
    assert tab.unreloaded()


def test_a_page_whose_node_sees_no_majority_says_so_on_each_view(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    tabs = [tab_of(view, node="node-1") for view in ("/tasks", "/timeline", "/tasks/uploads/edit")]
    for tab in tabs:
        tab.expected_error = "503"
    cluster.kill_at_once("node-2", "node-3")
    for tab in tabs:
        expect(tab.page.locator("#standing")).to_contain_text("node-1 sees no quorum")
        expect(tab.page.locator("#standing time")).to_be_visible()
    tabs[0].page.get_by_role("button", name="Pause uploads", exact=True).click()
    expect(tabs[0].page.locator("#notice")).to_contain_text("no quorum")
    text = tabs[2].page.get_by_label("Definition")
    text.fill(text.input_value() + "weight: 3\n")
    tabs[2].page.get_by_role("button", name="Check").click()
    tabs[2].page.get_by_role("button", name="Save").click()
    expect(tabs[2].page.get_by_role("alert").filter(has_text="Nothing was saved")).to_be_visible()
    assert text.input_value().endswith("weight: 3\n"), "what was typed stays"
    cluster.mend()
    expect(tabs[0].page.locator("#standing")).to_have_text("")
    tabs[2].page.get_by_role("button", name="Save").click()
    expect(tabs[2].page.get_by_role("heading", name="uploads")).to_be_visible()
    assert cluster.get("/v1/tasks/uploads")["weight"] == 3


def test_a_task_that_is_deleted_while_it_is_looked_at(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    cluster.register("short-lived", "command", params={"argv": ["true"]})
    tab = tab_of("/tasks/short-lived")
    expect(tab.page.locator("#now")).to_contain_text("version 1")
    cluster.ask("DELETE", path("v1", "tasks", "short-lived"))
    expect(tab.page.locator("#now")).to_contain_text("This is not kept up to date any more: there is no task")
    cluster.register("short-lived", "command", params={"argv": ["true"]})
    expect(tab.page.locator("#now")).not_to_contain_text("not kept up to date")


def test_a_page_of_an_earlier_build_asks_to_be_loaded_again(tab_of: Callable[..., Tab]) -> None:
    tab = tab_of("/tasks")
    said = tab.page.locator("#outdated")
    expect(said).to_be_hidden()
    tab.page.evaluate("document.documentElement.dataset.page = 'earlier'")
    expect(said).to_be_visible()
    said.get_by_role("link").click()
    expect(said).to_be_hidden()
