"""A cluster that is disturbed, repaired, and checked after each test."""

from collections.abc import Iterator

import pytest

from testkit.cluster import Cluster


@pytest.fixture(scope="package")
def harmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes in the state in which the last test left them."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def cluster(harmed: Cluster) -> Iterator[Cluster]:
    """Three nodes, all of them up. The invariants are checked when the test is over."""
    harmed.mend()
    yield harmed
    harmed.check()
