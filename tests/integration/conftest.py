"""What tests with attempts and with tables share."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testkit.servers.object_store import object_store

if TYPE_CHECKING:
    from testkit.servers.object_store import ObjectStore
    from testkit.spark.maintained import Lakehouse
    from testkit.spark.tables import TablePlace

ROOT = Path(__file__).parents[2]


@pytest.fixture
def kinds_for_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts find the kinds of `kinds_for_tests` and of the example, which are not installed."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'examples/rota-hello'}")


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> "Iterator[TablePlace]":
    """Where a table is: each test is done in both."""
    from testkit.spark.tables import InFolder, InStore  # not at the top: the extra `spark` may not be installed

    if request.param == "folder":
        yield InFolder(tmp_path / "table")
        return
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
    with object_store() as store:
        yield InStore(store)


@pytest.fixture(scope="session")
def far_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator["ObjectStore"]:
    """An object store in a process of its own, for all tests of this process: each takes names of its own."""
    from testkit.servers.object_store import object_store_process

    with object_store_process(tmp_path_factory.mktemp("store") / "store.log") as store:
        yield store


@pytest.fixture(scope="session")
def second_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The S3 API of another server than moto: what ROTA_TEST_S3 names, or Ceph's if it is installed."""
    from testkit.servers.ceph_gateway import ceph_gateway, is_installed
    from testkit.servers.object_store import OTHER

    if endpoint := os.environ.get(OTHER):
        yield endpoint
        return
    if not is_installed():
        pytest.skip("neither ROTA_TEST_S3 is set nor Ceph installed (Debian: radosgw, ceph-mon, ceph-osd)")
    with ceph_gateway(tmp_path_factory.mktemp("ceph") / "ceph") as endpoint:
        yield endpoint


@pytest.fixture(params=["moto", pytest.param("second", marks=pytest.mark.more)])
def any_store(request: pytest.FixtureRequest) -> "Iterator[ObjectStore]":
    """An object store: each test is done with moto's, and in `make test-more` with another server's."""
    from testkit.servers.object_store import ObjectStore

    pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
    if request.param == "second":
        yield ObjectStore(request.getfixturevalue("second_endpoint"), None)
        return
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    with object_store() as store:
        yield store


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.more)])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> "Lakehouse":
    """A table in a folder, and in `make test-more` one in an object store."""
    from testkit.spark.maintained import Lakehouse

    return Lakehouse(tmp_path, request.getfixturevalue("far_store") if request.param == "s3" else None)


@pytest.fixture
def in_store(far_store: "ObjectStore", tmp_path: Path) -> "Lakehouse":
    """A table in an object store."""
    from testkit.spark.maintained import Lakehouse

    return Lakehouse(tmp_path, far_store)


@pytest.fixture
def local(tmp_path: Path) -> "Lakehouse":
    """A table in a folder."""
    from testkit.spark.maintained import Lakehouse

    return Lakehouse(tmp_path)
