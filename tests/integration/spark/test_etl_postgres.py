"""ETL from PostgreSQL to PostgreSQL with real Spark: each batch once, equal to plain SQL on the same data."""

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")

from examples.demo import flights
from examples.demo.delays import DELAYS
from spark_tasks.contracts.sink import SinkUnfit
from spark_tasks.contracts.source import SourceReplaced, SourceUnfit
from spark_tasks.etl.errors import BatchUnfit, SinkReplaced
from spark_tasks.etl.kind import RESULT, Etl
from spark_tasks.etl.params import EtlParams
from spark_tasks.etl.transform import TransformUnfit
from spark_tasks.postgres import sink as postgres
from spark_tasks.postgres.params import PostgresTable
from spark_tasks.postgres.session import QueryUnfit, ServerAway, ServerRefused, Session
from spark_tasks.postgres.sink import PostgresSink
from tasks.kind import Fenced
from testkit.execution.one_attempt import kill_at_any_moment
from testkit.fake_context import FakeContext
from testkit.spark.databases import EtlDatabase
from testkit.spark.etl_sinks import at_step

pytestmark = [pytest.mark.integration, pytest.mark.spark]


ALL_TYPES = """
CREATE TABLE item (id int PRIMARY KEY, price numeric(10,2), wide numeric, at timestamptz, wall timestamp, day date,
  doc jsonb, raw bytea, clock time, tags text[], ok boolean, uid uuid, f real, d double precision, s smallint,
  "Odd ""name" text);
INSERT INTO item SELECT n, n / 100.0, n / 3.0, timestamptz '2026-01-01 00:00:00+02' + n * interval '1 hour 0.000001 s',
  timestamp '2026-01-01' + n * interval '1 s', date '1900-01-01' + n, jsonb_build_object('n', n),
  decode(md5(n::text), 'hex'), time '00:00' + n * interval '1 s', ARRAY['a', n::text], n % 2 = 0, md5(n::text)::uuid,
  n / 7.0, n / 9.0, n % 100, 'Größe ' || n FROM generate_series(1, 1000) n;
INSERT INTO item (id) VALUES (-7);
"""


@pytest.mark.more
def test_a_whole_table_of_all_types_arrives_as_it_is(database: EtlDatabase) -> None:
    database.sql(ALL_TYPES + "CREATE TABLE copy (LIKE item INCLUDING ALL)")
    params = {
        "source": database.end(table="public.item", partition_by="id", partitions=3),
        "sink": database.end(table="copy", mode="replace"),
    }
    context = database.attempt(params)
    result = Etl().run(context)
    assert set(result) == set(RESULT)
    assert (result["rows"], result["batches"], result["cursor"]) == (1001, 1, None)
    source, copy = "SELECT i.*, doc::text AS t FROM item i", "SELECT c.*, doc::text AS t FROM copy c"
    assert database.differ(source, copy) == ""
    assert [value["plan"] is None for value in context.saved] == [True, False, True]
    # The same run again, as after a crash behind the commit: it is in already.
    assert Etl().run(database.attempt(params, token=2))["batches"] == 0
    # A later run finds the source changed, and puts it in place of all.
    database.sql("DELETE FROM item WHERE id > 10; UPDATE item SET f = 1 WHERE id = 1")
    assert Etl().run(database.attempt(params, token=3, run=2))["rows"] == 11
    assert database.differ(source, copy) == ""
    assert database.staged() == "0"


@pytest.mark.more
@pytest.mark.parametrize("mode", ["append", "upsert", "replace"])
def test_tables_may_have_any_names(database: EtlDatabase, mode: str) -> None:
    source, target = '"my.schema"."My ""own"" T"', '"my.schema"."a.b"'
    database.sql(
        f'CREATE SCHEMA "my.schema"; CREATE TABLE {source} (id int PRIMARY KEY, version int); '
        f"INSERT INTO {source} SELECT n, n FROM generate_series(1, 5) n; "
        f"CREATE TABLE {target} (LIKE {source} INCLUDING ALL)"
    )
    keys = {"keys": ["id"]} if mode == "upsert" else {}
    params = {"source": database.end(table=source), "sink": database.end(table=target, mode=mode, **keys)}
    assert Etl().run(database.attempt(params))["rows"] == 5
    assert database.versions(target) == [(n, n) for n in range(1, 6)]


@pytest.mark.more
def test_flights_joined_with_planes_and_weather_equal_plain_sql_row_by_row(database: EtlDatabase) -> None:
    flights.load(database.sql)
    params = {
        "source": database.end(table="flights", partitions=2),
        "lookups": {"planes": database.end(table="planes"), "weather": database.end(table="weather")},
        "transform": {"sql": DELAYS.format(flights="source")},
        "sink": database.end(table="delays", mode="upsert", keys=["carrier", "day"]),
    }
    began_s = time.monotonic()
    result = Etl().run(database.attempt(params))
    print(f"{result['rows']} rows of 336776 flights in {time.monotonic() - began_s:.1f} s")
    plain = DELAYS.format(flights="flights")
    written = "SELECT carrier, day, flights, departed, arr_delay, seats, coldest, visib FROM delays"
    assert database.sql("SELECT sum(flights) FROM delays") == "336776"
    assert database.differ(plain, written) == ""
    database.sql("UPDATE flights SET arr_delay = 1000 WHERE carrier = 'UA' AND month = 5")
    again = Etl().run(database.attempt(params, token=2, run=2))
    assert again["rows"] == result["rows"]
    assert database.differ(plain, written) == ""


@pytest.mark.more
def test_batches_follow_a_cursor_and_a_key_is_updated_or_deleted(database: EtlDatabase) -> None:
    database.sql(
        "CREATE TABLE src (id int PRIMARY KEY, v text, gone boolean, at timestamptz NOT NULL);"
        "INSERT INTO src SELECT n, 'v' || n, false, now() - interval '1 h' + n * interval '1 s' "
        "FROM generate_series(1, 10) n"
    )
    params = {
        "source": database.end(table="src"),
        "incremental": {"cursor": "at", "lag_s": 1, "batch_rows": 4},
        "sink": database.end(table="dst", mode="upsert", keys=["id"], tombstone="gone"),
    }
    first = Etl().run(database.attempt(params))
    assert (first["rows"], first["deleted"], first["batches"]) == (10, 0, 3)
    assert database.differ("SELECT id, v, at FROM src", "SELECT * FROM dst") == ""
    nothing = database.attempt(params, token=2, run=2)
    assert Etl().run(nothing)["batches"] == 0
    assert nothing.saved == []
    database.sql("UPDATE src SET v = 'new', at = now() - interval '5 s' WHERE id = 3")
    database.sql("UPDATE src SET gone = true, at = now() - interval '5 s' WHERE id = 4")
    later = Etl().run(database.attempt(params, token=3, run=3))
    assert (later["rows"], later["deleted"]) == (1, 1)
    assert database.sql("SELECT v FROM dst WHERE id IN (3, 4)") == "new"
    marks = database.sql("SELECT string_agg(batch || '/' || token, ',' ORDER BY batch) FROM rota_batches")
    assert marks == "1/1,2/1,3/1,4/3"
    promised = database.attempt(params, token=4, run=4)
    promised.checkpoint = {"batch": 5, "plan": None}
    with pytest.raises(SinkReplaced, match="has committed batch 5, but the last batch in the sink is 4"):
        Etl().run(promised)
    with pytest.raises(SourceReplaced, match="was read by the cursor at"):
        Etl().run(database.attempt(params | {"incremental": {"xmin": True}}, token=5, run=5))


@pytest.mark.more
def test_a_day_that_is_not_over_waits(database: EtlDatabase) -> None:
    """A cursor that is a date has more rows to come until the day is over."""
    database.sql("CREATE TABLE src (id int, day date); INSERT INTO src VALUES (1, current_date - 2), (2, current_date)")
    params = {
        "source": database.end(table="src"),
        "incremental": {"cursor": "day", "lag_s": 1},
        "sink": database.end(table="dst", mode="append"),
    }
    assert Etl().run(database.attempt(params))["rows"] == 1
    assert Etl().run(database.attempt(params, token=2, run=2))["batches"] == 0
    assert database.sql("SELECT id FROM dst") == "1"


@pytest.mark.more
def test_xmin_finds_a_row_that_is_committed_late_with_an_earlier_cursor(database: EtlDatabase) -> None:
    database.sql(
        "CREATE TABLE src (id int PRIMARY KEY, v text); INSERT INTO src SELECT n, 'a' FROM generate_series(1, 5) n"
    )
    params = {
        "source": database.end(table="src"),
        "incremental": {"xmin": True},
        "sink": database.end(table="dst", mode="append"),
    }
    assert Etl().run(database.attempt(params))["rows"] == 5
    late = Session(database.uri)
    late.run("INSERT INTO src VALUES (6, 'late')", "SAVEPOINT s", "INSERT INTO src VALUES (7, 'late')", "RELEASE s")
    database.sql("INSERT INTO src VALUES (8, 'early')")
    assert Etl().run(database.attempt(params, token=2, run=2))["rows"] == 0  # it waits for the open transaction
    late.commit()
    late.close()
    database.sql("UPDATE src SET v = 'b' WHERE id = 1")
    assert Etl().run(database.attempt(params, token=3, run=3))["rows"] == 4
    rows = database.sql("SELECT string_agg(id || v, ',' ORDER BY id, v) FROM dst")
    assert rows == "1a,1b,2a,3a,4a,5a,6late,7late,8early"


class Heard(logging.Handler):
    """Calls `then` once, when a message with that text is logged."""

    def __init__(self, text: str, then: Callable[[], None]) -> None:
        super().__init__()
        self.text = text
        self.then: Callable[[], None] | None = then

    def emit(self, record: logging.LogRecord) -> None:
        if self.then is not None and self.text in record.getMessage():
            then, self.then = self.then, None
            then()


@contextmanager
def when_logged(context: FakeContext[EtlParams], text: str, then: Callable[[], None]) -> Iterator[None]:
    context.log = logging.getLogger(f"attempt-{context.token}")
    context.log.setLevel(logging.INFO)
    handler = Heard(text, then)
    context.log.addHandler(handler)
    yield
    context.log.removeHandler(handler)


@pytest.mark.more
def test_of_two_attempts_at_once_the_one_that_was_overtaken_commits_nothing(database: EtlDatabase) -> None:
    database.sql("CREATE TABLE src AS SELECT n AS id FROM generate_series(1, 100) n")
    params = {"source": database.end(table="src"), "sink": database.end(table="dst", mode="append")}
    old, new = database.attempt(params, token=1), database.attempt(params, token=2)
    target = new.params.sink
    assert isinstance(target, PostgresTable)

    def overtake() -> None:
        sink = PostgresSink(target, database.uri, "sales", database.folder / "other")
        assert sink.claim(2, instead_of=1)

        def fenced(value: Any) -> None:
            raise Fenced("token 2 has the run")

        old.before_checkpoint = fenced

    with when_logged(old, "rows are staged", overtake), pytest.raises(Fenced):
        Etl().run(old)
    assert database.sql("SELECT to_regclass('dst') IS NULL") == "t"
    assert database.staged() == "1"
    assert Etl().run(new)["rows"] == 100
    assert database.differ("SELECT * FROM src", "SELECT * FROM dst") == ""
    assert database.staged() == "0"
    sink = PostgresSink(target, database.uri, "sales", database.folder / "other")
    assert not sink.claim(1, instead_of=1)


@pytest.mark.more
def test_an_attempt_whose_staged_rows_were_swept_by_another_says_that_it_was_overtaken(database: EtlDatabase) -> None:
    """And not that a table is missing, which would be no reason to try again."""
    database.sql("CREATE TABLE src AS SELECT n AS id FROM generate_series(1, 100) n")
    params = {"source": database.end(table="src"), "sink": database.end(table="dst", mode="append")}
    old = database.attempt(params)
    target = old.params.sink
    assert isinstance(target, PostgresTable)

    def overtake() -> None:
        sink = PostgresSink(target, database.uri, "sales", database.folder / "other")
        assert sink.claim(2, instead_of=1)
        assert len(sink.sweep()) == 1

        def fenced(value: Any) -> None:
            raise Fenced("token 2 has the run")

        old.before_checkpoint = fenced

    with at_step((postgres, "fetch", "after"), overtake), pytest.raises(Fenced):
        Etl().run(old)
    assert database.sql("SELECT to_regclass('dst') IS NULL") == "t"


@pytest.mark.more
@pytest.mark.parametrize("die_at", ["is planned", "rows are staged", "is committed"])
def test_an_attempt_that_is_killed_leaves_all_of_a_batch_or_nothing(database: EtlDatabase, die_at: str) -> None:
    database.sql("CREATE TABLE src AS SELECT n AS id, md5(n::text) AS v FROM generate_series(1, 1000) n")
    params = {"source": database.end(table="src"), "sink": database.end(table="dst", mode="append")}
    database.killed(params, die_at, token=1)
    committed = die_at == "is committed"
    assert database.sql("SELECT to_regclass('dst') IS NULL") == ("f" if committed else "t")
    assert Etl().run(database.attempt(params, token=2))["rows"] == (0 if committed else 1000)
    assert database.differ("SELECT * FROM src", "SELECT * FROM dst") == ""
    assert database.staged() == "0"


@pytest.mark.more
def test_errors_name_what_is_wrong_in_a_sentence(database: EtlDatabase) -> None:
    database.sql("CREATE TABLE src (id int, n numeric, t varchar); INSERT INTO src VALUES (1, 2), (1, 3), (null, 4)")
    twice = {
        "source": database.end(query="SELECT * FROM src WHERE id = 1"),
        "sink": database.end(table="dst", mode="upsert", keys=["id"]),
    }
    with pytest.raises(SinkUnfit, match=r'"dst": one batch has 2 rows with the keys 1'):
        Etl().run(database.attempt(twice))
    nulls = twice | {"source": database.end(query="SELECT * FROM src WHERE n > 2")}
    with pytest.raises(SinkUnfit, match="1 rows of a batch have a null in their keys"):
        Etl().run(database.attempt(nulls, token=2))
    database.sql("INSERT INTO src VALUES (2, 'NaN')")
    with pytest.raises(SourceUnfit, match=r"the query, column n: the value NaN is no decimal\(38,18\): leave the row"):
        Etl().run(database.attempt(nulls | {"transform": {"sql": "SELECT * FROM source"}}, token=3))
    with pytest.raises(TransformUnfit, match=r"transform.sql: .*nope"):
        Etl().run(database.attempt(twice | {"transform": {"sql": "SELECT nope FROM source"}}, token=4))
    with pytest.raises(BatchUnfit, match="DIVIDE_BY_ZERO"):
        Etl().run(
            database.attempt(twice | {"transform": {"sql": "SELECT id, id / (id - 1) AS x FROM source"}}, token=5)
        )
    database.sql("CREATE TABLE narrow (id int, t varchar(3))")
    long = {
        "source": database.end(query="SELECT 1 AS id, 'a long text' AS t"),
        "sink": database.end(table="narrow", mode="append"),
    }
    with pytest.raises(
        QueryUnfit,
        match=r'"narrow", column t, .*, value a long text: value too long for type character varying\(3\) \(22001\)',
    ):
        Etl().run(database.attempt(long, token=6))
    with pytest.raises(SinkUnfit, match="has no unique index on"):
        Etl().run(database.attempt(long | {"sink": database.end(table="narrow", mode="upsert", keys=["id"])}, token=7))
    assert database.sql("SELECT count(*) FROM narrow") == "0"


def test_what_cannot_work_fails_before_spark_is_started(database: EtlDatabase) -> None:
    database.sql("CREATE TABLE src (id int, at timestamptz); INSERT INTO src VALUES (1, now())")
    good = {"source": database.end(table="src"), "sink": database.end(table="dst", mode="append")}
    with pytest.raises(QueryUnfit, match='relation "nowhere" does not exist'):
        Etl().run(database.attempt(good | {"source": database.end(table="nowhere")}))
    with pytest.raises(SourceUnfit, match="the source has no column nope; it has id, at"):
        Etl().run(database.attempt(good | {"incremental": {"cursor": "nope"}}))
    with pytest.raises(SourceUnfit, match=r"the cursor id is of type int4, which is no time: set `lag_s: 0`"):
        Etl().run(database.attempt(good | {"incremental": {"cursor": "id"}}))
    with pytest.raises(SourceUnfit, match="needs a `table`"):
        Etl().run(database.attempt(good | {"source": database.end(query="SELECT 1"), "incremental": {"xmin": True}}))
    locked_out = database.attempt(good)
    locked_out.secrets = {"pg": "not it"}
    with pytest.raises(ServerRefused, match="password authentication failed") as raised:
        Etl().run(locked_out)
    assert "not it" not in str(raised.value)
    away = database.end(table="src") | {"url": "postgresql://rota@127.0.0.1:1/none?connect_timeout=3"}
    with pytest.raises(ServerAway, match="Connection refused"):
        Etl().run(database.attempt(good | {"source": away}))
    assert not any(database.folder.glob("scratch-*/log4j2.properties"))


@pytest.mark.soak
def test_attempts_that_are_killed_at_any_moment_neither_lose_nor_double_a_row(database: EtlDatabase) -> None:
    """20 kills; after them the copy has each row once, and nothing is left behind."""
    database.sql(
        "CREATE TABLE src (id int PRIMARY KEY, v text);"
        "INSERT INTO src SELECT n, md5(n::text) FROM generate_series(1, 200000) n"
    )
    params = {
        "source": database.end(table="src"),
        "incremental": {"cursor": "id", "lag_s": 0, "batch_rows": 5000},
        "sink": database.end(table="dst", mode="append"),
    }
    draw = random.Random(14)
    lost = Counter(kill_at_any_moment(database.started(params, token), draw) for token in range(1, 21))
    print(f"20 attempts were killed, by what they were doing: {dict(lost)}")
    Etl().run(database.attempt(params, token=21))
    assert database.differ("SELECT * FROM src", "SELECT * FROM dst") == ""
    assert database.staged() == "0"
