"""The params of a task of kind `etl`, and what it reaches. Without Spark and without a database."""

import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from spark_tasks.etl.kind import Etl
from spark_tasks.etl.params import EtlParams
from spark_tasks.postgres.params import PostgresRows
from tasks.access import Access
from tasks.reach import refusals

URL = "postgresql://rota@db.internal/orders"
SOURCE = {"type": "postgres", "url": URL, "table": "public.orders"}
SINK = {"type": "postgres", "url": "postgresql://rota@dwh.internal:5433/dwh", "table": "orders", "mode": "append"}
SQLITE = {"type": "sqlite", "path": "/srv/app.db", "table": "planes"}
DELTA = {"type": "delta", "table": "s3://lake/flights"}
HTTP = {
    "type": "http",
    "url": "https://api.internal/v1/orders",
    "columns": {"id": "bigint", "at": "timestamp", "lines": "json"},
}
FILES = {"type": "files", "files": "/srv/in/*.csv", "format": "csv", "columns": "id INT"}
DELTA_SINK = {"type": "delta", "table": "/srv/tables/orders", "mode": "append"}
PARQUET = {"type": "parquet", "folder": "/srv/exports/orders"}
GOOD: dict[str, Any] = {"source": SOURCE, "sink": SINK}


def test_params_need_a_source_and_a_sink() -> None:
    params = EtlParams.model_validate(GOOD)
    assert isinstance(params.source, PostgresRows)
    assert (params.source.partitions, params.incremental, params.transform, params.lookups) == (4, None, None, {})
    assert Etl.local_data(params) == []


@pytest.mark.parametrize("word", [None, "null"], ids=["nothing", "quoted"])
def test_infinity_becomes_null_if_yaml_reads_the_word_as_nothing_or_not(word: str | None) -> None:
    params = EtlParams.model_validate(GOOD | {"source": SOURCE | {"infinity": word}})
    assert isinstance(params.source, PostgresRows)
    assert params.source.infinity is None
    assert EtlParams.model_validate(params.model_dump(mode="json", exclude_defaults=True)) == params


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"source": SOURCE | {"query": "SELECT 1"}}, "either `table` or `query`"),
        ({"source": {"type": "postgres", "url": URL}}, "either `table` or `query`"),
        ({"source": SOURCE | {"decimal": {"n": {"precision": 39}}}}, "less than or equal to 38"),
        ({"source": SOURCE | {"decimal": {"n": {"precision": 5, "scale": 6}}}}, "the scale 6 is greater than the prec"),
        ({"source": SOURCE | {"decimal": {"n": "decimal(38,2)"}}}, "valid dictionary or instance of DecimalType"),
        ({"source": SOURCE | {"infinity": "max"}}, "'refuse' or 'ends'"),
        ({"source": SOURCE | {"table": "a.b.c"}}, "TABLE or SCHEMA.TABLE"),
        ({"source": SOURCE | {"url": "postgresql://rota:hush@db/orders"}}, "must not contain a password"),
        ({"source": SOURCE | {"url": "mysql://db/orders"}}, "begins with postgresql://"),
        ({"incremental": {}}, "give one of `cursor`, `xmin: true`, `versions: true` and `files: true`"),
        ({"incremental": {"cursor": "at", "xmin": True}}, "give one of `cursor`"),
        ({"incremental": {"xmin": True, "batch_rows": 10}}, "`batch_rows` needs `cursor`"),
        ({"incremental": {"cursor": "at", "batch_versions": 10}}, "`batch_versions` needs `versions`"),
        (
            {"incremental": {"versions": True}},
            "source of type postgres is found by `cursor` or `xmin`, and not by `ver",
        ),
        ({"source": SQLITE, "incremental": {"xmin": True}}, "source of type sqlite is found by `cursor`, and not by"),
        ({"source": DELTA, "incremental": {"cursor": "at"}}, "source of type delta is found by `versions`"),
        ({"source": DELTA | {"table": "tables/t"}}, "must begin with"),
        ({"source": DELTA | {"table": "gs://lake/t"}}, "cannot be at gs://"),
        ({"source": DELTA | {"options": {"profile": "x"}}}, "'profile' cannot be set by a task"),
        ({"source": DELTA | {"keys": ["id"]}}, "give `tombstone` as well"),
        ({"source": DELTA | {"tombstone": "gone"}}, r"needs `incremental: \{versions: true\}`"),
        ({"lookups": {"a": DELTA | {"tombstone": "gone"}}}, r"lookups.a: .*needs `incremental: \{versions: true\}`"),
        ({"incremental": {"cursor": "at", "parameter": "since"}}, "`parameter` is for a source of type http"),
        ({"source": HTTP, "incremental": {"xmin": True}}, "source of type http is found by `cursor`"),
        ({"source": HTTP, "incremental": {"cursor": "no"}}, "the cursor no is not one of `columns`"),
        ({"source": HTTP, "incremental": {"cursor": "lines"}}, "the cursor lines is of type json"),
        ({"source": HTTP, "incremental": {"cursor": "id"}}, "which is no time: set `lag_s: 0`"),
        (
            {"source": HTTP, "incremental": {"cursor": "at", "batch_rows": 5}},
            "`batch_rows` is for a source that is",
        ),
        ({"source": HTTP | {"columns": {"id": "varchar"}}}, "'varchar' is not a type"),
        ({"source": HTTP | {"columns": {"id": "decimal(39,1)"}}}, "1 to 38 digits"),
        ({"source": HTTP | {"columns": {}}}, "at least 1 item"),
        ({"source": HTTP | {"keys": ["no"]}}, "`keys` names no, which `columns` does not have"),
        ({"source": HTTP | {"url": "ftp://api/x"}}, "begins with http:"),
        ({"source": HTTP | {"url": "https://me:hush@api/x"}}, "names no user, no password"),
        ({"source": HTTP | {"url": "https://api/\r\nHost: x"}}, "printable ASCII"),
        ({"source": HTTP | {"headers": {"Authorization": "Bearer hush"}}}, "holds a secret: give a reference"),
        ({"source": HTTP | {"headers": {"Host": "other"}}}, "not a header that a task may set"),
        ({"source": HTTP | {"headers": {"X-A": "a\nb"}}}, "characters that no header may have"),
        ({"source": HTTP | {"pages": {}}}, "give either `next` or `parameter`"),
        ({"source": HTTP | {"pages": {"parameter": "p", "by": "token"}}}, "`token` is needed for `by: token`"),
        ({"source": HTTP | {"pages": {"next": "a", "first": 1}}}, "`first` is for `by: page`"),
        ({"source": FILES, "incremental": {"cursor": "at"}}, "source of type files is found by `files`"),
        ({"source": FILES | {"columns": None}}, "`columns` is required for format csv"),
        ({"source": FILES | {"files": "in/*.csv"}}, "must begin with"),
        ({"source": FILES | {"malformed": "quarantine"}}, "Input should be 'fail'"),
        ({"source": FILES | {"ready": {"age_s": 5}}, "incremental": {"files": True}}, "`ready` is for files that are"),
        ({"incremental": {"cursor": "at", "lag_s": -1}}, "greater than or equal to 0"),
        ({"sink": SINK | {"mode": "upsert"}}, "`keys` are needed"),
        ({"sink": SINK | {"keys": ["id"]}}, "`keys` are needed"),
        ({"sink": SINK | {"tombstone": "gone"}}, "`tombstone` needs"),
        ({"sink": SINK | {"mode": "replace"}, "incremental": {"xmin": True}}, "read whole"),
        ({"sink": DELTA_SINK | {"mode": "replace"}, "incremental": {"xmin": True}}, "read whole"),
        ({"sink": DELTA_SINK | {"mode": "merge"}}, "`keys` are needed"),
        ({"sink": DELTA_SINK | {"keys": ["id"]}}, "`keys` are needed"),
        ({"sink": DELTA_SINK | {"tombstone": "gone"}}, "`tombstone` needs"),
        ({"sink": DELTA_SINK | {"mode": "merge", "keys": ["id"], "tombstone": "id"}}, "cannot be one of `keys`"),
        ({"sink": DELTA_SINK | {"mode": "overwrite_partitions"}}, "needs `partition_by`"),
        ({"sink": DELTA_SINK | {"table": "tables/t"}}, "must begin with '/'"),
        ({"sink": DELTA_SINK | {"table": "gs://lake/t"}}, "cannot be at gs://"),
        ({"sink": PARQUET | {"folder": "s3://lake"}}, "cannot be a whole bucket"),
        ({"sink": PARQUET | {"options": {"key": "k"}}}, "key"),
        ({"sink": PARQUET | {"mode": "append"}}, "not permitted"),
        ({"transform": {}}, "either `sql` or `function`"),
        ({"transform": {"sql": "SELECT 1", "args": {"a": 1}}}, "`args` are for a `function`"),
        ({"lookups": {"source": SOURCE}}, "cannot name a view"),
        ({"lookups": {"a b": SOURCE}}, "cannot name a view"),
        ({"sinks": SINK}, "not permitted"),
    ],
)
def test_wrong_params_are_refused_with_a_reason(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        EtlParams.model_validate(GOOD | wrong)


def test_an_sqlite_file_is_on_the_member_s_own_disk_unless_it_is_shared() -> None:
    params = EtlParams.model_validate(GOOD | {"lookups": {"planes": SQLITE, "others": SQLITE | {"shared": True}}})
    assert Etl.local_data(params) == ["lookups"]
    assert Etl.local_data(EtlParams.model_validate(GOOD | {"source": SQLITE})) == ["source"]
    access = Access("node-1", ("/srv",), source_hosts=("*",), destination_hosts=("*",))
    assert refusals(access, Etl.reaches(params, "orders")) == []
    assert len(refusals(Access("node-1", source_hosts=("*",)), Etl.reaches(params, "orders"))) == 3


def test_a_sink_in_a_folder_is_on_the_member_s_own_disk_unless_it_is_shared() -> None:
    own = Access("node-1", source_hosts=("*",), destination_roots=("/srv/tables",))
    for sink, refused in ((DELTA_SINK, 0), (PARQUET, 1), (DELTA_SINK | {"table": "s3://lake/t"}, 1)):
        params = EtlParams.model_validate(GOOD | {"sink": sink})
        local = "s3:" not in str(sink)
        assert Etl.local_data(params) == (["sink"] if local else [])
        assert Etl.local_data(EtlParams.model_validate(GOOD | {"sink": sink | {"shared": True}})) == []
        found = refusals(own, Etl.reaches(params, "orders"))
        assert len(found) == refused
        assert all(one.startswith("params.sink: ") for one in found)


def test_servers_that_a_node_does_not_allow_are_named_with_their_field() -> None:
    params = EtlParams.model_validate(
        GOOD | {"lookups": {"planes": SOURCE | {"url": "postgresql://planes.internal/p"}}}
    )
    access = Access("node-1", source_hosts=("db.internal:5432",), destination_hosts=("dwh.internal:5433",))
    [refused] = refusals(access, Etl.reaches(params, "orders"))
    assert refused.startswith("params.lookups.planes: ")
    assert len(refusals(Access("node-1"), Etl.reaches(params, "orders"))) == 3


def test_the_kind_is_known_without_importing_spark_or_adbc() -> None:
    code = (
        "import sys, spark_tasks.etl.kind as e; e.Etl.Params.model_json_schema(); "
        "print([name for name in ('pyspark', 'deltalake', 'pyarrow', 'adbc_driver_manager') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_delta_table_in_a_folder_is_on_the_member_s_own_disk_and_one_in_a_bucket_is_not() -> None:
    given = {"source": DELTA | {"table": "file:///data/t"}, "lookups": {"a": DELTA}}
    params = EtlParams.model_validate(GOOD | given)
    assert Etl.local_data(params) == ["source"]
    access = Access("node-1", ("/data",), source_hosts=("s3://lake",), destination_hosts=("*",))
    assert refusals(access, Etl.reaches(params, "orders")) == []
    assert len(refusals(Access("node-1", destination_hosts=("*",)), Etl.reaches(params, "orders"))) == 2
    assert Etl.local_data(EtlParams.model_validate(GOOD | {"source": DELTA | {"table": "/t", "shared": True}})) == []


def test_an_http_api_is_reached_at_its_host_and_port() -> None:
    params = EtlParams.model_validate(GOOD | {"source": HTTP, "incremental": {"cursor": "at", "parameter": "since"}})
    assert Etl.local_data(params) == []
    access = Access("node-1", source_hosts=("api.internal:443",), destination_hosts=("*",))
    assert refusals(access, Etl.reaches(params, "orders")) == []
    assert len(refusals(Access("node-1", destination_hosts=("*",)), Etl.reaches(params, "orders"))) == 1


def test_files_are_on_the_member_s_own_disk_unless_they_are_shared_or_remote() -> None:
    params = EtlParams.model_validate(GOOD | {"source": FILES, "incremental": {"files": True}})
    assert Etl.local_data(params) == ["source"]
    access = Access("node-1", ("/srv/in",), destination_hosts=("*",))
    assert refusals(access, Etl.reaches(params, "orders")) == []
    remote = EtlParams.model_validate(GOOD | {"source": FILES | {"files": "s3://lake/in/*.csv"}})
    assert Etl.local_data(remote) == []
    assert len(refusals(access, Etl.reaches(remote, "orders"))) == 1
