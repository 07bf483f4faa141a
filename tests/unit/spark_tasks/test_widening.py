"""How the files of a table are put into portions that are written again one after another."""

import pytest

pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from spark_tasks.ingest.widening import portions
from spark_tasks.table.live_files import LiveFile


def test_files_are_put_into_portions_in_their_order() -> None:
    files = [LiveFile(name, size_bytes, {}, {}, {}) for name, size_bytes in zip("abcde", (3, 4, 19, 0, 1), strict=True)]
    assert [[file.path for file in some] for some in portions(files, 10)] == [["a", "b"], ["c"], ["d", "e"]]
    assert [len(some) for some in portions(files, 100)] == [5]
    assert list(portions([], 10)) == []
