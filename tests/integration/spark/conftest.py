"""All Spark sessions of these tests run in one JVM: these files go to one worker of `make test`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.demo.postgres import Server, postgres_server
from tests.integration.spark.databases import PASSWORD, EtlDatabase
from tests.integration.spark.ingests import House


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
def house(tmp_path: Path) -> House:
    """A folder of source files and a table."""
    return House(tmp_path)


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
