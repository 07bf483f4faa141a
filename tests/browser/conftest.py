"""One browser and one cluster of three real nodes for all tests of this folder: a test leaves the nodes running."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from testkit.cluster import Cluster
from tests.browser.chromium import chromium
from tests.browser.showcase import ENV, READ_TOKEN, TOKEN, fill

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.tab import Scheme, Tab, Width


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Only `make test-browser` reads these files: what they import is not installed everywhere."""
    return None if "browser" in config.getoption("markexpr") else True


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """This machine's Chromium."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def whole_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, dict[str, str]]]:
    """Three nodes, which require a token, with the tasks of `showcase`; and the last runs of those."""
    with Cluster(tmp_path_factory.mktemp("browser"), env=ENV, open_to_all=False) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        yield cluster, fill(cluster)


@pytest.fixture
def cluster(whole_cluster: tuple[Cluster, dict[str, str]]) -> Cluster:
    """The cluster, with all nodes ready."""
    cluster, _ = whole_cluster
    if len(cluster.running()) < len(cluster.names):
        cluster.mend()
    return cluster


@pytest.fixture
def runs(whole_cluster: tuple[Cluster, dict[str, str]]) -> dict[str, str]:
    """The last run of each task of `showcase` that was run."""
    return whole_cluster[1]


@pytest.fixture(scope="session")
def sessions() -> dict[str, Any]:
    """The cookies of each role that has signed in: every member accepts them."""
    return {}


@pytest.fixture
def tab_of(browser: "Browser", cluster: Cluster, sessions: dict[str, Any]) -> "Iterator[Callable[..., Tab]]":
    """Opens tabs, signed in. At the test's end each one's console is empty, and none has asked another host."""
    from tests.browser.tab import open_tab

    tabs: list[Tab] = []

    def opened(
        path: str = "/", *, scheme: "Scheme" = "light", width: "Width" = "wide", node: str = "", reader: bool = False
    ) -> "Tab":
        token = READ_TOKEN if reader else TOKEN
        tab = open_tab(browser, cluster.url(node or cluster.names[0]), scheme, width, sessions.get(token))
        tabs.append(tab)
        if token not in sessions:
            sessions[token] = tab.sign_in(token).page.context.storage_state()
        return tab.go(path)

    yield opened
    for tab in tabs:
        tab.page.context.close()
    for tab in tabs:
        tab.clean()
