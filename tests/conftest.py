"""What holds for all tests."""

import fcntl
import gc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

# An example that takes long on a machine with much else to do says nothing about the code.
settings.register_profile("rota", deadline=None)
settings.load_profile("rota")


class FolderOrFile(LoadFileScheduling):  # type: ignore[misc]  # its types are not read here
    """A worker gets a file; or a whole folder of tests/integration, whose files share a cluster or a JVM."""

    def _split_scope(self, nodeid: str) -> str:
        return _folder(nodeid) or nodeid.partition("::")[0]


def _folder(nodeid: str) -> str:
    """The folder of tests/integration that a test is in, if it is in one."""
    folder, _, _ = nodeid.partition("::")[0].rpartition("/")
    return folder if folder.startswith("tests/integration/") else ""


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FolderOrFile | None:
    """How the tests are divided among workers. By file in `make test-more`: its tests on Spark are too many for one."""
    return None if config.getoption("markexpr") == "more" else FolderOrFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The simulated histories go first: they take what the others leave of both cores, at the lowest priority.

    Then those folders that are one worker's, since they take longest. Files with tests that run alone go last: a worker
    that waits until the others are idle runs nothing meanwhile.
    """
    alone = {item.path for item in items if item.get_closest_marker("alone") is not None}

    def turn(item: pytest.Item) -> int:
        if item.path.name == "test_histories.py" and "simulation" in item.path.parts:
            return 0
        if item.path in alone:
            return 3
        return 1 if _folder(item.nodeid) else 2

    items.sort(key=turn)


def pytest_collection_finish() -> None:
    """What is imported by now stays. Walking through it again and again took a tenth of the unit tier."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Four tests run at a time (`make test`); beside one that is marked `alone`, none with real processes."""
    marks = {mark.name for mark in request.node.iter_markers()}
    if not marks & {"alone", "integration", "chaos"}:
        yield
        return
    with (tmp_path_factory.getbasetemp().parent / "machine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if "alone" in marks else fcntl.LOCK_SH)
        yield
