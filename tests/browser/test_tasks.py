"""A task is registered, edited, watched and cancelled by hand and keyboard."""

from collections.abc import Callable
from typing import Final

import pytest
from playwright.sync_api import expect

from testkit.cluster import Cluster
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser

BOX: Final = "document.querySelector('{}').getBoundingClientRect()"
"""Where an element is, of the document as it is: rows are replaced when something happens."""

TOP: Final = BOX.format('#rows a[href$="tasks/panelled"]') + ".top"


def test_a_task_is_registered_and_edited_with_an_error_on_the_way(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    tab = tab_of("/tasks")
    tab.expected_error = "422"
    page = tab.page
    page.get_by_role("link", name="New task").click()
    text = page.get_by_label("Definition")
    text.fill('name: by-hand\nkind: command\nparams:\n  argv: [echo, hello]\nschedule: {cron: "0 25 * * *"}\n')
    page.get_by_role("button", name="Check").click()
    errors = page.get_by_role("alert")
    expect(errors).to_contain_text("schedule.cron")
    errors.get_by_role("button", name="line 5").click()
    assert page.evaluate("getSelection().toString()").startswith("schedule:")
    text.fill(text.input_value().replace("25", "5"))
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("row", name="schedule")).to_contain_text("0 5 * * *")
    page.get_by_role("button", name="Save the new task").click()
    expect(page.get_by_role("heading", name="by-hand")).to_be_visible()
    assert cluster.get("/v1/tasks/by-hand")["schedule"]["cron"] == "0 5 * * *"
    page.get_by_role("link", name="Edit").first.click()
    text.fill(text.input_value() + "weight: 3\n")
    cluster.register("by-hand", "command", params={"argv": ["true"]})
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("alert")).to_contain_text("Meanwhile somebody else has changed it")
    expect(page.get_by_role("row", name="weight")).to_contain_text("3")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#now")).to_contain_text("version 3")
    assert cluster.get("/v1/tasks/by-hand")["weight"] == 3


def test_a_task_says_why_it_fails_and_that_it_is_late(tab_of: Callable[..., Tab], runs: dict[str, str]) -> None:
    tab = tab_of("/tasks/currency-rates")
    expect(tab.page.locator("#now")).to_contain_text("Late: not succeeded within 1 s of its due time")
    tab.page.get_by_role("link", name="CommandFailed").click()
    tab.page.wait_for_url(f"**/runs/{runs['currency-rates']}")
    expect(tab.page.get_by_role("group", name="Error")).to_contain_text("no rates for 2 of 31 currencies: XAU, XAG")


def test_the_panel_opens_beside_the_list_and_leaves_it_in_place(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    notes = cluster.notes()
    cluster.register("panelled", params=notes.params)
    tab = tab_of("/tasks?q=a")
    page = tab.page
    tab.mark()
    link = page.get_by_role("link", name="panelled", exact=True)
    top = page.evaluate(TOP)
    link.press("Enter")
    panel = page.locator("#panel")
    expect(panel.get_by_role("heading", name="panelled")).to_be_focused()
    assert page.evaluate(f"{BOX.format('#rows')}.right <= {BOX.format('#panel')}.left"), "beside"
    assert abs(page.evaluate(TOP) - top) < 60
    panel.get_by_role("button", name="Run").click()
    expect(panel).to_contain_text("running on")
    panel.get_by_role("button", name="Cancel").click()
    expect(panel).to_contain_text("cancelled")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(link).to_be_focused()
    assert tab.unreloaded()
    tab.page.set_viewport_size({"width": 900, "height": 800})
    link.click()
    page.wait_for_url("**/tasks/panelled")


def test_a_run_is_watched_live_and_cancelled(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    script = "for n in $(seq 3000); do echo line $n; done; rota ctx progress 3 12 files; for n in $(seq 600); do "
    cluster.register("talking", "command", params={"argv": ["sh", "-c", script + "echo more $n; sleep 0.1; done"]})
    tab = tab_of("/tasks/talking", node="node-2")
    page = tab.page
    tab.mark()
    page.get_by_role("button", name="Run").click()
    active = page.get_by_role("region", name="At work or waiting")
    expect(active).to_contain_text("3 of 12 files")
    assert tab.unreloaded()
    active.get_by_role("link", name="running on").click()
    log = page.get_by_role("log")
    expect(log).to_contain_text("more 30")
    expect(page.locator("#log-said")).to_contain_text("following")
    assert log.evaluate("(e) => e.scrollTop + e.clientHeight >= e.scrollHeight - 8"), "it follows"
    assert log.evaluate("(e) => e.children.length") <= 2000, "it is bounded"
    page.keyboard.press("/")
    page.keyboard.type("LINE 2999")
    expect(log.locator("div:visible")).to_have_count(1)
    page.get_by_role("searchbox").fill("")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.path().read_text().startswith("line 1\nline 2\n")
    tab.mark()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#now")).to_contain_text("cancelled")
    expect(page.locator("#log-said")).not_to_contain_text("following")
    assert tab.unreloaded()
