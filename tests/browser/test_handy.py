"""What is done to tasks from the page: found by filters, run with params, duplicated, deleted; times in one zone."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from testkit.cluster import Cluster
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser


def test_tasks_are_filtered_and_sorted_in_place(tab_of: Callable[..., Tab]) -> None:
    tab = tab_of("/tasks")
    page, rows = tab.page, tab.page.locator("#rows")
    tab.mark()
    page.locator("select[name=set]").select_option("site")
    expect(rows.locator("tbody tr")).to_have_count(1)
    expect(rows).to_contain_text("photos-weekly")
    assert page.url.endswith("/tasks?set=site")
    page.locator("select[name=set]").select_option("")
    page.locator("select[name=label]").select_option("team=media")
    expect(rows.locator("tbody tr")).to_have_count(1)
    page.locator("select[name=label]").select_option("")
    page.locator("select[name=kind]").select_option("backup")
    expect(rows.locator("tbody tr")).to_have_count(2)
    page.locator("select[name=sort]").select_option("next")
    expect(rows.locator("th[aria-sort]")).to_have_text("Next")
    assert page.url.endswith("/tasks?kind=backup&sort=next")
    assert tab.unreloaded()
    page.get_by_role("link", name="Last run").click()
    page.wait_for_url("**/tasks?kind=backup&sort=last")
    expect(page.locator("select[name=kind]")).to_have_value("backup")
    expect(page.locator("select[name=sort]")).to_have_value("last")
    page.get_by_role("link", name="kind: backup").click()
    page.wait_for_url("**/tasks?sort=last")


def test_a_task_is_run_with_params_by_keyboard_and_again_with_the_same(
    cluster: Cluster, tab_of: Callable[..., Tab]
) -> None:
    cluster.register("talks", "command", params={"argv": ["sh", "-c", "echo one\necho two\n"], "cwd": "/"})
    tab = tab_of("/tasks/talks")
    page = tab.page
    page.get_by_role("link", name="Run with params").click()
    argv = page.get_by_label("argv")
    assert argv.input_value() == "- sh\n- -c\n- |\n  echo one\n  echo two"
    argv.fill(argv.input_value().replace("two", "three"))
    page.get_by_label("cwd").press("Enter")
    page.wait_for_url("**/runs/*")
    expect(page.get_by_role("group", name="What it was given")).to_contain_text("echo three")
    expect(page.get_by_role("log")).to_contain_text("three")
    page.get_by_role("link", name="Run again with these params").click()
    expect(page.get_by_label("argv")).to_have_value(re.compile("echo three"))
    tab.axe()
    page.get_by_role("button", name="Run with these params").click()
    page.wait_for_url("**/runs/*")
    [latest, first] = cluster.get("/v1/tasks/talks/runs")["items"]
    assert latest["params"] == first["params"] == {"argv": ["sh", "-c", "echo one\necho three\n"], "cwd": "/"}
    assert cluster.get("/v1/tasks/talks")["params"]["argv"][2] == "echo one\necho two\n", "the definition stays"


def test_a_task_is_duplicated_and_deleted(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    cluster.register("original", "command", params={"argv": ["true"]}, set="site")
    tab = tab_of("/tasks/original")
    page = tab.page
    page.get_by_role("link", name="Duplicate").click()
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("row", name="name")).to_contain_text("original-copy")
    page.get_by_role("button", name="Save the new task").click()
    page.wait_for_url("**/tasks/original-copy")
    assert cluster.get("/v1/tasks/original-copy")["set"] is None
    tab.go("/tasks/original")
    page.get_by_role("link", name="Edit").first.click()
    expect(page.get_by_role("note")).to_contain_text("kept in the set site")
    tab.axe()
    tab.go("/tasks/original")
    expect(page.get_by_role("button", name="Delete original")).to_be_hidden()
    page.locator(".confirm summary").press("Enter")
    # What is open stays open while the part is made anew, as when the task runs.
    cluster.wait_for_run(cluster.run("original"))
    expect(page.locator("#past")).to_contain_text("succeeded")
    expect(page.locator(".confirm")).to_contain_text("It is kept in the set site")
    page.get_by_role("button", name="Delete original").click()
    page.wait_for_url("**/tasks")
    assert cluster.ask("GET", "/v1/tasks/original").status == 404


def test_times_are_by_the_clocks_of_one_zone(tab_of: Callable[..., Tab]) -> None:
    tab = tab_of("/tasks/month-end")
    page = tab.page
    zone = page.get_by_label("Time zone of the times on this page")
    expect(zone).to_have_value("Europe/Paris")
    due = page.get_by_role("region", name="When it is due")
    expect(due).to_contain_text("Europe/Paris")
    expect(due.locator("li").first).to_contain_text(re.compile(r"1 \w+ \d{4} 11:00 \+0[12]:00"))
    zone.select_option("America/New_York")
    expect(due.locator("li").first).to_contain_text(re.compile(r"1 \w+ \d{4} 05:00 -0[45]:00"))
    expect(due).not_to_contain_text("Europe/Paris")
    tab.go("/timeline?past_h=1&ahead_h=24")
    expect(zone).to_have_value("America/New_York")
    bar = page.locator('a[aria-label^="uploads, due at"]').first
    there = str(bar.get_attribute("aria-label"))
    zone.select_option("UTC")
    expect(bar).not_to_have_attribute("aria-label", there)
    assert re.search(r"due at 0[01]:30, on", str(bar.get_attribute("aria-label")))
    assert bar.locator("title").text_content() == bar.get_attribute("aria-label")
    zone.select_option("Europe/Paris")
