"""The timeline in a browser: what would be without a member, by a click and by the keyboard."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Route, expect

from testkit.cluster import Cluster
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser


def test_tonight_is_drawn_again_without_a_member(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    tab = tab_of("/timeline")
    tab.mark()
    plan = tab.page.get_by_role("region", name="Timeline", exact=True)
    tab.page.get_by_role("checkbox", name="node-2").check()
    expect(plan).to_contain_text("What if without node-2")
    expect(plan).to_contain_text("A majority would be left: 2 of 3 members up, 2 needed")
    moved = plan.get_by_role("row").filter(has=tab.page.get_by_role("cell", name="node-2"))
    expect(moved.first).to_be_visible()
    assert tab.page.url.endswith("without=node-2"), "the address is that of what is shown"
    tab.axe()
    tab.page.get_by_role("checkbox", name="node-3").check()
    expect(plan).to_contain_text("No majority would be left: 1 of 3 members up, 2 needed")
    assert tab.unreloaded()
    tab.page.reload()
    expect(tab.page.get_by_role("checkbox", name="node-3")).to_be_checked()
    assert all(cluster.get("/v1/members")["items"][slot]["status"] == "up" for slot in range(3)), "only asked"


def test_an_answer_is_shown_though_the_part_in_its_place_was_brought_up_to_date(tab_of: Callable[..., Tab]) -> None:
    """It was lost: the element that it was asked for was no more in the document."""
    tab = tab_of("/timeline")
    asked: list[Route] = []
    tab.page.route("**/timeline?part=plan*", lambda route: asked.append(route))
    with tab.page.expect_request("**/timeline?part=plan*"):
        tab.page.get_by_role("checkbox", name="node-2").check()
    tab.page.evaluate("const plan = document.getElementById('plan'); become(plan, plan.cloneNode(true))")
    asked[0].continue_()
    expect(tab.page.get_by_role("region", name="Timeline", exact=True)).to_contain_text("What if without node-2")


def test_bars_are_reached_by_the_keyboard(tab_of: Callable[..., Tab], runs: dict[str, str]) -> None:
    tab = tab_of("/timeline?past_h=1&ahead_h=1")
    bar = tab.page.locator(f'a[href$="runs/{runs["clickstream"]}"]').first
    bar.focus()
    expect(bar).to_be_focused()
    assert "clickstream" in str(bar.get_attribute("aria-label"))
    tab.page.get_by_text("The same as a table").click()
    row = tab.page.get_by_role("row").filter(has=tab.page.get_by_role("link", name="clickstream")).first
    expect(row).to_contain_text("running since")
    # The part is made anew every few seconds at most: what was opened stays open, and what was focused keeps it.
    tab.page.get_by_role("combobox", name="Back").select_option("24")
    expect(tab.page.locator("#plan")).to_have_attribute("data-here", "timeline?past_h=24&ahead_h=1")
    expect(tab.page.locator("#as-table")).to_have_attribute("open", "")


def test_a_run_that_goes_on_elsewhere_is_joined_by_a_line(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    notes = cluster.notes()
    name = next(
        task
        for number in range(50)
        if cluster.register(task := f"taken-over-{number}", params=notes.params)
        and cluster.owner_of(task) != "node-1"
        and cluster.owner_of(task) != cluster.leader()
    )
    tab = tab_of("/timeline?past_h=1&ahead_h=1", node="node-1")
    run_id = cluster.run(name)
    victim = cluster.wait_for_run(run_id, "running")["node"]
    first = tab.page.get_by_label(f"{name} on {victim}, running since")
    expect(first).to_be_attached()
    cluster.kill(victim)
    expect(tab.page.get_by_label(f"{name}, attempt 1 on {victim}")).to_be_attached()
    expect(tab.page.locator(f'a[aria-label^="{name}, attempt 2 on"]').first).to_be_attached()
    expect(tab.page.locator("path.takeover").first).to_be_attached()
    notes.let_go()
    cluster.mend()


def test_a_chain_stands_out_while_one_of_its_bars_is_pointed_at_or_focused(
    cluster: Cluster, tab_of: Callable[..., Tab]
) -> None:
    fails = {"kind": "command", "params": {"argv": ["false"]}, "retry": {"attempts": 1}}  # failed ones are always drawn
    for name, after in {"trace-first": [], "trace-then": [{"task": "trace-first", "on": "failed"}]}.items():
        assert cluster.ask("PUT", f"/v1/tasks/{name}", json={**fails, "after": after}).status in (200, 201)
    cluster.ask("POST", "/v1/tasks/trace-first/runs", json={"downstream": True})
    tab = tab_of("/timeline?past_h=1&ahead_h=1")
    bar = tab.page.locator('#chart a[aria-label^="trace-then on"]')
    expect(bar).to_have_attribute("aria-label", re.compile("; it came after trace-first$"))
    chain = bar.get_attribute("data-chain")
    whole = tab.page.locator(f'#chart [data-chain="{chain}"]')
    expect(whole).to_have_count(3)  # two bars and the line between them
    marked = tab.page.locator("#chart .traced")
    expect(marked).to_have_count(0)
    bar.focus()
    expect(marked).to_have_count(3)
    tab.axe()
    tab.page.get_by_role("button", name="Show").focus()
    expect(marked).to_have_count(0)
    bar.locator("rect").hover(force=True)
    expect(marked).to_have_count(3)
