"""A cluster that is harmed, and mended before each test."""

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster


@pytest.fixture(scope="package")
def harmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes in whatever state the last test left them."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def cluster(harmed: Cluster) -> Cluster:
    """Three nodes, all of them up."""
    harmed.mend()
    return harmed
