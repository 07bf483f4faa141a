"""What tasks say, as the page shows it: nothing of it is obeyed, and nothing reads as something else."""

from collections.abc import Callable
from typing import Final

import pytest
from playwright.sync_api import expect

from testkit.cluster import Cluster
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser

EVIL: Final = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>\u202eexe.txt \x1b[31mred\x1b[0m"
SAYS: Final = r"""
import os, pathlib, sys, time
print(os.environ.get("EVIL", sys.argv[1]))
sys.stdout.write("nul \x00 end\n")
for n in range(100):
    sys.stdout.write(f"\r{n} % of a bar")
sys.stdout.flush()
while not pathlib.Path(sys.argv[2]).exists():
    time.sleep(0.05)
sys.stdout.write("\n" + "x" * 300_000 + "\n" + sys.argv[1] + "\n")
sys.exit(sys.argv[1])
"""


def test_what_a_task_says_is_text_and_is_readable(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    gate = cluster.folder / "evil-gate"
    argv = ["python3", "-c", SAYS, EVIL, str(gate)]
    cluster.register("evil", "command", params={"argv": argv}, group={"gpu": EVIL})
    cluster.register("evil-runs", "command", params={"argv": argv}, retry={"attempts": 1})
    run_id = cluster.run("evil-runs")
    tab = tab_of(f"/runs/{run_id}")
    log = tab.page.get_by_role("log")
    expect(log).to_contain_text("99 % of a bar")
    expect(log.locator("div")).to_have_count(3)
    expect(log).to_contain_text(r"</script>\u202eexe.txt red")
    expect(log).to_contain_text(r"nul \u0000 end")
    gate.touch()
    expect(log.locator("div").filter(has_text="the line is longer")).to_have_count(1)
    expect(tab.page.get_by_role("group", name="Error")).to_contain_text(r"</script>\u202eexe.txt red")
    for view in ("/", "/tasks", "/tasks/evil", "/tasks/evil/edit", "/timeline", "/members", "/events"):
        tab.go(view)
        assert tab.page.evaluate("window.pwned") is None, view
        assert "\u202e" not in tab.page.locator("body").inner_text(), view


def test_the_longest_name_fits_into_the_narrowest_window(cluster: Cluster, tab_of: Callable[..., Tab]) -> None:
    """320 pixels: a small phone, or a wide window at 400 %."""
    name = "n" * 128
    schedule = {"cron": "*/5 * * * *", "timezone": "America/Argentina/ComodRivadavia"}
    cluster.register(name, "command", params={"argv": ["sleep", "60"]}, schedule=schedule)
    run_id = cluster.run(name)
    tab = tab_of("/", width="phone")
    tab.page.set_viewport_size({"width": 320, "height": 600})
    for view in (
        "/",
        f"/tasks?q={name}",
        f"/tasks/{name}",
        f"/tasks/{name}/edit",
        f"/runs/{run_id}",
        "/timeline",
        "/events",
    ):
        tab.go(view)
        tab.fits()
