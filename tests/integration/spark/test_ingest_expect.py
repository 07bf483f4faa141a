"""What a task expects of its rows, with real Spark."""

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from spark_tasks.ingest.expectations import ExpectationFailed
from spark_tasks.ingest.kind import RESULT, Ingest
from testkit.spark.ingests import House

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.more]

EXPECT: dict[str, Any] = {
    "small": {"sql": "n < 8", "on_fail": "warn"},
    "even": {"sql": "n % 2 = 0", "on_fail": "drop"},
    "text": {"sql": "text <> 'x'", "on_fail": "drop"},
}


def test_rows_that_are_not_as_expected_are_counted_and_dropped_where_the_task_says_so(house: House) -> None:
    house.put_csv(0)
    (house.folder / "in" / "01.csv").write_text("n,text\n10,a\n12,\n13,b\n14,x\nbad,c\n")
    params: dict[str, Any] = {"columns": "n INT, text STRING", "expect": EXPECT, "malformed": "quarantine"}
    result = Ingest().run(house.attempt(batch_files=1, **params))
    assert house.numbers() == [2, 4, 6, 8, 10]
    assert (result["rows"], result["dropped"], result["quarantined"]) == (5, 9, 1)
    assert result["expect"] == {"small": 6, "even": 6, "text": 3}, "null is not true"
    assert result.keys() == RESULT.keys()
    again = house.attempt(token=2, **params)
    assert {**Ingest().run(again), "seconds": 0} == result | {"seconds": 0}, "of this run, by both attempts"


def test_a_batch_with_a_row_that_must_not_be_is_not_committed(house: House) -> None:
    house.put_csv(0)
    house.put_csv(1)
    expect = {"few": {"sql": "n < 15", "on_fail": "fail"}}
    with pytest.raises(ExpectationFailed, match=r"few \(n < 15\) is not true of 5 rows: the batch was not committed"):
        Ingest().run(house.attempt(batch_files=1, expect=expect))
    assert house.numbers() == list(range(10))
    program = "IDENTIFIER('ref' || 'lect')('java.lang.System', 'lineSeparator') IS NULL"
    for sql in ("amount > 0", "n <", program):
        with pytest.raises(ExpectationFailed, match=r"expect\.few: ") as told:
            Ingest().run(house.attempt(token=2, expect={"few": {"sql": sql, "on_fail": "warn"}}))
        assert "\n" not in str(told.value)
