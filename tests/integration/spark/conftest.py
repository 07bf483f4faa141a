"""All Spark sessions of these tests run in one JVM: these files go to one worker of `make test`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples.demo.postgres import Server, postgres_server
from testkit.servers.object_store import object_store
from testkit.spark.databases import PASSWORD, EtlDatabase
from testkit.spark.shelf import Shelf

if TYPE_CHECKING:
    from testkit.spark.ingests import House, Lake


@pytest.fixture(scope="package", autouse=True)
def one_jvm() -> Iterator[None]:
    """The JVM is started by the first session, and ended after the last test."""
    yield
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=60)
        SparkContext._gateway = None
        SparkContext._jvm = None


@pytest.fixture
def house(tmp_path: Path) -> "House":
    """A folder of source files and a table."""
    from testkit.spark.ingests import House  # not at the top: the extra `spark` may not be installed

    return House(tmp_path)


@pytest.fixture
def lake(tmp_path: Path) -> "Iterator[Lake]":
    """A folder of source files and a table in an object store."""
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
    from testkit.spark.ingests import Lake

    with object_store() as store:
        yield Lake(tmp_path, store)


@pytest.fixture(params=["house", pytest.param("lake", marks=pytest.mark.more)])
def anywhere(request: pytest.FixtureRequest) -> "House":
    """A folder of source files, and a table in a folder or in an object store."""
    found: House = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """A source file and a target file of SQLite."""
    return Shelf(tmp_path)


@pytest.fixture(scope="package")
def server() -> Iterator[Server]:
    """A PostgreSQL server for all of these tests."""
    with postgres_server(PASSWORD) as running:
        yield running


@pytest.fixture
def database(server: Server, tmp_path: Path) -> EtlDatabase:
    """An empty database for one test."""
    name = f"t{tmp_path.name.encode().hex()[-40:]}"
    server.sql("postgres", f"CREATE DATABASE {name}")
    return EtlDatabase(server, name, tmp_path)
