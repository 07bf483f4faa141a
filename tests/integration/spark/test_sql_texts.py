"""Random texts over the grammar of Spark's own parser: what the checker accepts holds nothing that is in no list."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from spark_tasks.spark.session import spark_session
from testkit.spark.sql_texts.soak import Soak

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.more]


def test_a_second_look_at_accepted_texts_finds_nothing_that_is_in_no_list(tmp_path: Path) -> None:
    """`python -m testkit.spark.sql_texts` checks a million."""
    with spark_session("texts", tmp_path / "scratch") as spark:
        figures = Soak(spark).run(0, 2_000)
    assert figures.parsed > 700, "the texts are of the grammar"
    assert figures.accepted > 150, "and not all are refused"
    assert not {name for name in figures.reasons if "cannot be checked:" in name}
    assert {"ScriptTransformation", "SetCommand", "PlanWithUnresolvedIdentifier"} <= figures.reasons.keys()
