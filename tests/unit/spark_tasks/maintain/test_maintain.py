"""What the maintenance of a table decides: params, which files are rewritten, what is done to a ledger."""

from typing import Any

import pytest
from pydantic import ValidationError

pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from spark_tasks.maintain.cleaning import NEWEST, WORTHWHILE, PageWork, page_work
from spark_tasks.maintain.kind import Maintain
from spark_tasks.maintain.layout import Bin, DataFile, bins, cluster_mark, groups
from spark_tasks.maintain.params import MaintainParams
from spark_tasks.table.ledger import Mark, Page, PageFile
from tasks.access import Access
from tasks.reach import refusals

WEEK_S = 168 * 3600


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"table": "s3://bucket"}, "whole bucket"),
        ({"table": "tables/flights"}, "must begin with '/'"),
        ({"keep_h": 24}, "a `keep_h` of 24, less than 168, needs `longest_attempt_h`"),
        ({"keep_h": 24, "longest_attempt_h": 24}, r"must be greater than `longest_attempt_h` \(24\)"),
        ({"longest_attempt_h": 200}, "must be greater than"),
        ({"keep_h": 0, "longest_attempt_h": 0}, "greater than or equal to 1"),
        ({"options": {"key": "k"}}, "cannot be set by a task for file"),
        ({"cluster": ["n"]}, "Extra inputs"),
        ({"cluster_by": ["n", "m", "n"]}, "names n more than once"),
        ({"target_bytes": 1000}, "greater than or equal to 1048576"),
    ],
)
def test_params_that_are_wrong_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MaintainParams(**{"table": "/tables/flights"} | wrong)


def test_files_may_be_kept_for_less_than_a_week_if_no_attempt_takes_as_long() -> None:
    assert MaintainParams(table="/tables/flights", keep_h=24, longest_attempt_h=6).keep_h == 24


def test_a_table_on_a_member_s_own_disk_is_local_data_and_is_reached_as_a_destination() -> None:
    mine, ours = MaintainParams(table="/tables/x"), MaintainParams(table="file:///tables/x", shared=True)
    away = MaintainParams(table="s3://lake/x")
    assert [Maintain.local_data(each) for each in (mine, ours, away)] == [["table"], [], []]
    access = Access("node-1", ("/in",), ("/out",), (), ("s3://other",), ())
    for params in (mine, away):
        [refused] = refusals(access, Maintain.reaches(params, "task"))
        assert refused.startswith("params.table: ")


def _files(number: int, size_bytes: int, **more: Any) -> list[DataFile]:
    return [DataFile(f"{size_bytes}-{each}", size_bytes, **more) for each in range(number)]


def _shown(found: list[Bin]) -> list[tuple[str, int, int]]:
    return [(one.how, len(one.files), one.size_bytes) for one in found]


def test_small_files_are_counted_and_merged_by_partition() -> None:
    spread = [DataFile(f"f-{day}", 10, partition=(day,)) for day in "abcdefgh"]
    assert bins(spread, None, 100, 2) == []
    found = bins([*spread, *_files(2, 20, partition=("a",))], None, 100, 3)
    assert _shown(found) == [("compact", 3, 50)]
    assert found[0].partition == ("a",)


def test_an_empty_table_needs_nothing() -> None:
    assert bins([], None, 100, 2) == bins([], "by-x", 100, 2) == []


def test_a_merged_file_has_about_the_target_size_and_the_files_of_a_time() -> None:
    files = [DataFile(f"f-{number}", 30, modified_ms=number) for number in (5, 1, 4, 2, 3, 6, 0)]
    found = bins(files, None, 100, 2)
    assert _shown(found) == [("compact", 3, 90), ("compact", 3, 90)], "a single one that is left over stays"
    assert [file.modified_ms for file in found[0].files] == [0, 1, 2]


def test_a_partition_is_clustered_again_after_a_fifth_of_it_is_new() -> None:
    mark = cluster_mark(["n"])
    old = DataFile(f"by-{mark}/bin-{mark}-0.parquet", 800)
    for new, how in ((200, []), (201, ["cluster"])):
        assert [one.how for one in bins([old, DataFile("new", new)], mark, 100, 3)] == how
    assert [one.how for one in bins([old], cluster_mark(["m"]), 100, 3)] == ["cluster"], "by other columns"
    far = [DataFile(f"far-{mark}", 100, partition=("x",)), DataFile("unsorted", 100, partition=("y",))]
    assert [one.partition for one in bins(far, mark, 100, 3)] == [("y",)]


def test_few_new_rows_in_many_files_are_merged_until_the_partition_is_clustered_again() -> None:
    assert _shown(bins([DataFile("x/by-x", 10_000), *_files(9, 10)], "by-x", 1000, 8)) == [("compact", 9, 90)]


def test_files_that_cannot_be_taken_out_of_the_table_are_left_alone() -> None:
    fixed = [DataFile("ü", 10, movable=False), DataFile("a%2Db", 900, movable=False)]
    assert bins(fixed, "by-x", 100, 2) == []
    assert _shown(bins([*fixed, *_files(2, 10)], None, 100, 2)) == [("compact", 2, 20)]


def test_bins_are_committed_in_groups_of_about_the_target_size() -> None:
    found = [Bin("compact", tuple(_files(2, size))) for size in (10, 20, 30, 200, 5)]
    sizes = [[one.size_bytes for one in some] for some in groups(found, 100)]
    assert sizes == [[20, 40], [60], [400], [10]]
    assert list(groups([], 100)) == []


def _pages(number: int) -> list[PageFile]:
    """The files of a ledger with that many batches, newest first."""
    made = []
    for batch in range(number, 0, -1):
        previous = Mark(batch - 1, 1) if batch > 1 else None
        made.append(PageFile(Page(Mark(batch, 1), previous, "run", 1, 0, ((f"/in/{batch}", 1),))))
    return made


def _merged(files: list[PageFile], batch: int, merged_s: float) -> list[PageFile]:
    """The same ledger after the pages up to that of `batch` were merged into it."""
    at = next(index for index, file in enumerate(files) if file.page.mark.batch == batch)
    earlier = tuple(file.page for file in files[at + 1 :])
    return [*files[:at], PageFile(files[at].page, earlier, merged_s)]


def test_pages_are_merged_once_there_are_many_and_the_newest_are_left() -> None:
    assert page_work([], [], 0, WEEK_S) == PageWork(None, ())
    few = _pages(NEWEST + WORTHWHILE - 1)
    assert page_work(few, [file.page.mark for file in few], 0, WEEK_S) == PageWork(None, ())
    many = _pages(NEWEST + WORTHWHILE)
    assert page_work(many, [file.page.mark for file in many], 0, WEEK_S) == PageWork(Mark(WORTHWHILE, 1), ())


def test_merged_pages_go_once_no_attempt_can_be_reading_them() -> None:
    files = _merged(_pages(300), 200, merged_s=1000)
    there = [Mark(batch, 1) for batch in range(1, 301)]
    assert page_work(files, there, 1000 + WEEK_S - 1, WEEK_S) == PageWork(None, ())
    work = page_work(files, there, 1000 + WEEK_S, WEEK_S)
    assert work.remove == tuple(Mark(batch, 1) for batch in range(199, 0, -1))
    assert work.merge is None, "100 newer ones, of which the newest 10 are left"
    assert page_work(files, there[150:], 1000 + WEEK_S, WEEK_S).remove[-1] == Mark(151, 1), "others are gone already"


def test_pages_that_came_after_a_merge_are_merged_later() -> None:
    files = _merged(_pages(200 + WORTHWHILE + NEWEST), 200, merged_s=1000)
    work = page_work(files, [], 1000 + WEEK_S, WEEK_S)
    assert work == PageWork(Mark(200 + WORTHWHILE, 1), ())
