"""100,000 tasks stay usable: each page is shown, and a search finds the one that it asks for.

make test-browser MANY=1. They are in a cluster of their own: the other tests' is for a few. How soon a page is painted
is measured by `python -m bench.page --tasks 100000`.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import expect

from testkit.cluster import Cluster
from tests.browser.showcase import ENV
from tests.browser.tab import Tab

pytestmark = [pytest.mark.browser, pytest.mark.soak]

TASKS: Final = 100_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes with 100,000 tasks."""
    with Cluster(tmp_path_factory.mktemp("many"), env=ENV, open_to_all=False) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        for first in range(0, TASKS, 1000):
            cluster.client.call("POST", "/v1/tasks", body=[_spec(number) for number in range(first, first + 1000)])
        cluster.wait_until_whole()
        yield cluster


@pytest.fixture(scope="module")
def sessions() -> dict[str, Any]:
    """The cookies of this cluster."""
    return {}


def test_a_hundred_thousand_tasks_are_shown_and_searched(tab_of: Callable[..., Tab]) -> None:
    tab = tab_of("/tasks", node="node-2")
    for path, shown in (("/", "100,000 tasks"), ("/tasks/many-050000", "many-050000")):
        expect(tab.go(path).page.locator("main")).to_contain_text(shown)
    tab.go("/tasks")
    for words, found in (
        ("many 099999", "many-099999"),
        ("5 Y-0 1", "many-000015"),
        ("nothing-like-it", "No task"),
    ):
        tab.page.get_by_role("searchbox").fill(words)
        expect(tab.page.locator("#rows")).to_contain_text(found)
    tab.axe()


def _spec(number: int) -> dict[str, object]:
    cron = f"{number % 60} {number // 60 % 24} 1 1 *"
    return {"name": f"many-{number:06}", "kind": "command", "params": {"argv": ["true"]}, "schedule": {"cron": cron}}
