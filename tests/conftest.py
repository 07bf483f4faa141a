"""What holds for all tests."""

import fcntl
import gc
from collections.abc import Iterator

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The simulated histories go first: they take both cores for themselves, and nobody has begun anything by then."""
    items.sort(key=lambda item: item.path.name != "test_histories.py" or "simulation" not in item.path.parts)


def pytest_collection_finish() -> None:
    """What is imported by now stays. Walking through it again and again took a tenth of the unit tier."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Three tests run at a time (`make test`); beside one that is marked `alone`, none with real processes."""
    marks = {mark.name for mark in request.node.iter_markers()}
    if not marks & {"alone", "integration", "chaos"}:
        yield
        return
    with (tmp_path_factory.getbasetemp().parent / "machine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if "alone" in marks else fcntl.LOCK_SH)
        yield
