"""What a task of kind `ingest` may read and write on a node. Without Spark."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from spark_tasks.files.faults import BadFile
from spark_tasks.files.listing import Source, check_allowed, listing
from spark_tasks.files.staging import check_unchanged, staged
from spark_tasks.ingest.kind import Ingest
from spark_tasks.ingest.params import IngestParams
from tasks.access import Access, AccessRefused
from tasks.file_guard import FileGuard
from tasks.reach import refusals
from testkit.fake_context import FakeContext


@pytest.fixture
def access(tmp_path: Path) -> Access:
    for name in ("in/sub", "tables", "data", "etc"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "in" / "a.csv").write_text("n\n1\n")
    (tmp_path / "data" / "own.csv").write_text("n\n2\n")
    (tmp_path / "etc" / "unguessed.csv").write_text("n\n3\n")
    return Access("node-1", (f"{tmp_path}/in",), (f"{tmp_path}/tables",), ("files",), (), (f"{tmp_path}/data",))


def test_what_lies_in_a_root_is_listed(tmp_path: Path, access: Access) -> None:
    assert [source.path for source in listing([f"{tmp_path}/in/*.csv"], access)] == [f"{tmp_path}/in/a.csv"]


@pytest.mark.parametrize(
    "glob",
    [
        "{root}/etc/*.csv",
        "{root}/data/*.csv",
        "{root}/in/../data/*.csv",
        "{root}/in/*/../../etc/*.csv",
        "{root}/in/link/*.csv",
        "{root}/in/*/*.csv",
        "{root}/in/linked.csv",
        "{root}/*/*.csv",
        "/proc/self/environ",
        "/proc/*/environ",
        "http://169.254.169.254/latest/meta-data/*",
        "s3://theirs/*.csv",
        "sftp://elsewhere/*.csv",
    ],
)
def test_nothing_else_is(tmp_path: Path, access: Access, glob: str) -> None:
    (tmp_path / "in" / "link").symlink_to(tmp_path / "etc")
    (tmp_path / "in" / "linked.csv").symlink_to(tmp_path / "data" / "own.csv")
    if "in/*/" in glob:  # what a wildcard finds goes through no link, and never up
        assert listing([glob.format(root=tmp_path)], access) == ()
        return
    with pytest.raises(AccessRefused):
        listing([glob.format(root=tmp_path)], access)


def test_a_hard_link_to_the_node_s_own_is_not_read(tmp_path: Path, access: Access) -> None:
    (tmp_path / "in" / "b.csv").hardlink_to(tmp_path / "data" / "own.csv")
    with pytest.raises(AccessRefused, match="another path to"):
        listing([f"{tmp_path}/in/*.csv"], access)


def test_a_file_that_has_become_a_link_since_it_was_listed_is_refused(tmp_path: Path, access: Access) -> None:
    found = listing([f"{tmp_path}/in/*.csv"], access)
    check_allowed(found, access)
    (tmp_path / "in" / "a.csv").unlink()
    (tmp_path / "in" / "a.csv").symlink_to(tmp_path / "data" / "own.csv")
    with pytest.raises(AccessRefused):
        check_allowed(found, access)
    with pytest.raises(AccessRefused):
        check_allowed([Source("s3://theirs/x", 1)], access)


@pytest.mark.parametrize(
    "table", ["data/table", "elsewhere", "in/table", "tables/../data/t", "tables/linked", "tables"]
)
def test_no_table_is_written_but_where_the_node_allows_it(tmp_path: Path, access: Access, table: str) -> None:
    (tmp_path / "tables" / "linked").symlink_to(tmp_path / "data")
    (tmp_path / "tables" / "task").symlink_to(tmp_path / "data")
    params = IngestParams(source=f"{tmp_path}/in/*.csv", table=f"{tmp_path}/{table}", format="csv")
    with pytest.raises(AccessRefused):
        Ingest().run(FakeContext(params, tmp_path, access=access))
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["own.csv"]
    assert not (tmp_path / "elsewhere").exists()


def test_a_table_in_a_bucket_is_at_a_host_that_the_node_must_allow() -> None:
    given: dict[str, Any] = {"source": "/in/*.csv", "format": "csv", "table": "s3a://lake/flights/"}
    there = IngestParams(**given)
    assert there.table == "s3://lake/flights"
    assert Ingest.reaches(there, "t")[1].addresses == ("s3://lake",)
    assert Ingest.local_data(there) == ["source"], "nothing of it is on a member's own disk"
    assert Ingest.local_data(IngestParams(**given | {"source": "s3://landing/*.csv"})) == []
    options = {"endpoint_url": "http://box:9000", "secret": {"secret": "s3"}}
    boxed = IngestParams(**given | {"options": options})
    access = Access("node-1", source_roots=("/",), destination_hosts=("s3://lake",))
    [refused] = refusals(access, Ingest.reaches(boxed, "t"))
    assert "params.table: s3://lake/flights, at box:9000: node-1 allows no such destination" in refused


@pytest.mark.parametrize(
    "url",
    [
        "simplecache::file:///x",
        "filecache://x",
        "zip://x",
        "github://a:b@c/x",
        "reference://x",
        "jar:file:///x",
        "S3://b",
    ],
)
def test_file_systems_that_read_through_others_are_refused_at_registration(url: str) -> None:
    given: dict[str, Any] = {"table": "/t", "format": "csv"}
    with pytest.raises(
        ValidationError, match=r"not a file system that a task may name|chains file systems|must begin with"
    ):
        IngestParams(source=url, **given)


def test_what_spark_reads_is_what_was_checked_whatever_is_put_in_its_place(tmp_path: Path) -> None:
    folder = tmp_path / "srv"
    folder.mkdir()
    (tmp_path / "secret").write_text("theirs")
    (folder / "a.csv").write_text("ours")
    guard = FileGuard(Access("node-1", source_roots=(str(folder),), own=(str(tmp_path / "secret"),)), "source")
    found = listing([f"{folder}/*.csv"])
    with staged(found, tmp_path / "scratch", guard) as places:
        (folder / "a.csv").unlink()
        (folder / "a.csv").symlink_to(tmp_path / "secret")
        assert [(place.suffix, place.read_text()) for place in places] == [(".csv", "ours")]
        check_unchanged(places)
    assert not (tmp_path / "scratch").exists()
    with pytest.raises(AccessRefused, match="own"), staged(found, tmp_path / "scratch", guard):
        pass
    (folder / "a.csv").unlink()
    with pytest.raises(BadFile, match="is gone"), staged(found, tmp_path / "scratch", guard):
        pass
