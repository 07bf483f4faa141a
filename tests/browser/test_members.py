"""Members and events in a browser: draining with a preview, and what was decided."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from testkit.cluster import Cluster
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser


def test_a_member_is_drained_and_undrained(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    victim = next(name for name in cluster.names if name not in ("node-1", cluster.leader()))
    tab, events = tab_of("/members", node="node-1"), tab_of("/events", node="node-1")
    for one in (tab, events):
        one.mark()
    card = tab.page.get_by_role("article", name=victim)
    expect(card).to_contain_text("held, ")
    expect(card).to_contain_text("free")
    card.get_by_text("Drain", exact=False).first.click()
    expect(card).to_contain_text("would begin on another member than now")
    expect(card).to_contain_text("See it on the timeline")
    tab.axe()
    assert cluster.get("/v1/members")["items"][cluster.names.index(victim)]["status"] == "up"
    card.get_by_role("button", name=f"Drain {victim}").click()
    expect(tab.page.get_by_role("status").filter(has_text=f"{victim} gets no new runs")).to_be_visible()
    expect(card).to_contain_text("drained")
    expect(events.page.get_by_role("row").filter(has_text="draining").filter(has_text=victim)).to_be_visible()
    card.get_by_text("Undrain", exact=False).first.click()
    card.get_by_role("button", name=f"Undrain {victim}").click()
    expect(card.locator(".state")).to_contain_text("up")
    assert tab.unreloaded()
    assert events.unreloaded()


def test_events_are_filtered(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    tab = tab_of("/events")
    cluster.register("told", "command", params={"argv": ["true"]})
    run_id = cluster.run("told")
    cluster.wait_for_run(run_id)
    rows = tab.page.locator("#rows")
    expect(rows).to_contain_text(run_id)
    expect(rows).to_contain_text("has all events since")
    tab.page.get_by_role("searchbox").fill("nothing has this name")
    expect(rows).to_contain_text("No event that is kept fits")
    tab.page.get_by_role("searchbox").fill("told")
    expect(rows.get_by_role("row").filter(has_text="succeeded")).to_be_visible()
    # A finger rests on the button for longer than an answer takes: what is replaced meanwhile hears no click.
    tab.page.get_by_role("link", name="Members").last.click(delay=500)
    expect(rows).not_to_contain_text(run_id)
