"""The week in a browser: its days are by the clocks of the page's time zone, and a link's time zone is the page's."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from node.cli.local import wait_for
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser


def test_the_week_follows_the_time_zone_of_the_page_and_the_page_that_of_a_link(tab_of: Callable[..., Tab]) -> None:
    tab = tab_of("/week")
    expect(tab.page).to_have_url(re.compile(r"timezone=Europe%2FParis"))  # the browser's own
    grid = tab.page.get_by_role("table", name="What is due by the clocks of Europe/Paris")
    expect(grid.get_by_text("02:30").first).to_be_visible()
    chooser = tab.page.get_by_label("Time zone of the times on this page")
    chooser.select_option("UTC")
    expect(tab.page).to_have_url(re.compile(r"timezone=UTC"))
    expect(tab.page.get_by_role("table", name="What is due by the clocks of UTC")).to_be_visible()
    tab.go("/week?begins=2026-11-30&timezone=America%2FNew_York")
    expect(chooser).to_have_value("America/New_York")
    tab.page.get_by_role("link", name="the week after").click()
    expect(tab.page).to_have_url(re.compile(r"begins=2026-12-07&timezone=America%2FNew_York"))
    tab.page.get_by_label("By the clocks of").select_option("Europe/Paris")
    expect(tab.page).to_have_url(re.compile(r"begins=2026-12-07&timezone=Europe%2FParis"))
    expect(chooser).to_have_value("Europe/Paris")


def test_the_grid_scrolls_in_itself_on_a_phone_by_the_keyboard_too(tab_of: Callable[..., Tab]) -> None:
    tab = tab_of("/week?timezone=Europe%2FParis", width="phone")
    tab.fits()
    grid = tab.page.get_by_role("region", name="What is due, by day and hour")
    assert grid.evaluate("one => one.scrollWidth > one.clientWidth")
    grid.focus()
    tab.page.keyboard.press("ArrowRight")
    wait_for("the grid to scroll", lambda: grid.evaluate("one => one.scrollLeft > 0"), 30)
    hours = grid.get_by_role("rowheader", name="02")
    assert hours.evaluate("one => one.getBoundingClientRect().left >= 0"), "the hours stay in sight"
