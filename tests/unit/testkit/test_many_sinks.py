"""What the kind of the test of all sinks puts in the place of the kinds' own. That test runs on demand only."""

from typing import Any

import spark_tasks.etl.kind
import spark_tasks.ingest.attempt
from spark_tasks.spark.session import session_of
from testkit.spark.many_sinks import sharing


def test_both_kinds_are_given_the_session_that_is_there_while_the_block_lasts() -> None:
    places: list[Any] = [spark_tasks.etl.kind, spark_tasks.ingest.attempt]
    with sharing(None):  # type: ignore[arg-type]
        assert all(place.session_of is not session_of for place in places)
    assert all(place.session_of is session_of for place in places)
