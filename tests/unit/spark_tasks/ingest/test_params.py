"""The params of a task of kind `ingest`, and the making of its error messages. Without Spark."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from spark_tasks.files.faults import MalformedRows, ReadFailed, SchemaDrift, file_to_blame
from spark_tasks.files.form import Form, options
from spark_tasks.files.reading import unknown_fields
from spark_tasks.files.reasons import OTHER, reason
from spark_tasks.ingest.params import IngestParams
from spark_tasks.spark.session import attempt_configuration

GOOD: dict[str, Any] = {"source": "/in/*.csv", "table": "/out/flights", "format": "csv"}


def test_params_take_one_glob_or_several() -> None:
    assert IngestParams(**GOOD | {"source": ["/in/*.csv", "s3://bucket/*.csv"], "table": "file:///out"}).table


def test_all_that_is_wrong_with_fields_together_is_said_at_once() -> None:
    wrong = {"columns": "n INT", "partition_by": ["day", "hour"], "format": "parquet", "encoding": "windows-1252"}
    with pytest.raises(ValidationError) as told:
        IngestParams(**GOOD | wrong)
    said = [error["msg"] for error in told.value.errors()]
    assert [text.partition(" ")[0] for text in said] == ["`encoding`", "`partition_by`", "`partition_by`"]


def test_a_format_of_times_may_have_text_of_its_own() -> None:
    for pattern in ("dd.MM.yyyy 'Uhr' HH:mm:ss[.SSS][XXX]", "yyyy年MM月dd日 HH:mm", "hh 'o''clock' a, '%' yyyy-MM-dd"):
        assert IngestParams(**GOOD | {"timestamp_format": pattern}).timestamp_format == pattern


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"source": "in/*.csv"}, "must begin with '/'"),
        ({"source": []}, "at least 1 item"),
        ({"timestamp_format": "%d.%m.%y"}, "not a strftime one"),
        ({"timestamp_format": "YYYY-MM-DD"}, "'Y' is no letter of Spark's patterns, such as yyyy-MM-dd"),
        ({"table": "out"}, "must begin with '/'"),
        ({"table": "gs://bucket/out"}, "cannot be at gs://"),
        ({"table": "s3://bucket"}, "whole bucket"),
        ({"table": "s3://key:word@bucket/out"}, "must not contain a password"),
        ({"table": "s3://bucket/out", "options": {"profile": "root"}}, "cannot be set by a task"),
        ({"options": {"key": "k"}}, "cannot be set by a task for file"),
        ({"format": "xml"}, "'csv', 'json', 'tbl', 'parquet' or 'avro'"),
        ({"format": "tbl"}, "`columns` is required for format tbl"),
        ({"malformed": "skip"}, "'fail' or 'quarantine'"),
        ({"expect": {"a b": {"sql": "n > 0", "on_fail": "warn"}}}, "pattern"),
        ({"expect": {"a": {"sql": "n > 0", "on_fail": "skip"}}}, "'warn', 'drop' or 'fail'"),
        ({"header": False, "rescue": True}, "are for files that name their columns"),
        ({"format": "tbl", "columns": "n INT", "schema_evolution": "add"}, "are for files that name their columns"),
        ({"ready": {}}, "give `age_s` or `marker`"),
        ({"ready": {"age_s": 1, "marker": "x"}}, "give `age_s` or `marker`"),
        ({"ready": {"marker": "../x"}}, "pattern"),
        ({"batch_files": 0}, "greater than or equal to 1"),
        ({"batch_bytes": 0}, "greater than or equal to 1"),
        ({"headers": True}, "not permitted"),
        ({"columns": "n INTT"}, "column n: there is no type INTT: did you mean INT?"),
        ({"columns": "`a b` INT"}, "a Delta table cannot have a column named 'a b'"),
        ({"columns": "n INT, t STRING", "partition_by": ["day"]}, "`partition_by` names day, and `columns` are n, t"),
        ({"columns": "n INT", "partition_by": ["n"]}, "a table needs one that it is not partitioned by"),
        ({"columns": "n INT, l ARRAY<INT>", "partition_by": ["l"]}, "is partitioned by single values"),
        (
            {"columns": "n INT, d DOUBLE", "partition_by": ["d"], "table": "s3://bucket/out"},
            "only a table in a folder may be partitioned by another type",
        ),
        ({"escape": "ab"}, "pattern"),
        ({"escape": ",", "delimiter": ","}, "cannot be part of `delimiter`"),
        ({"escape": "\\", "quotes": False}, "`escape` is for format csv with `quotes`"),
        ({"quotes": False, "multiline": True}, "a line break needs quotes around it"),
        ({"timestamp_format": "HH:mm"}, "it has no year, and Spark would make one up"),
        ({"timestamp_format": "[yyyy-MM-dd ]HH:mm"}, "it has no year"),
        ({"timestamp_format": "yyyy HH:mm"}, "it has no month and day"),
        ({"timestamp_format": "yyyy-MM-dd hh:mm"}, "hours up to 12 and no a"),
        ({"timestamp_format": "yyyy-MM-dd mm"}, "it has no hour"),
        ({"timestamp_format": "yyyy-MM-dd HH:mm:ss.SSSSSSSSS"}, "write SSSSSS at most"),
    ],
)
def test_wrong_params_are_refused_with_a_reason(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        IngestParams(**GOOD | wrong)


def test_the_kind_is_known_without_importing_spark_or_deltalake() -> None:
    code = (
        "import sys, spark_tasks.ingest.kind as i; i.Ingest.Params.model_json_schema(); "
        "print([name for name in ('pyspark', 'deltalake', 'pyarrow', 'numpy', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_quotes_are_doubled_as_in_rfc_4180() -> None:
    assert options(Form(format="csv"))["escape"] == '"'
    assert "escape" not in options(Form(format="json"))


def test_a_pause_of_an_hour_is_no_dead_peer(tmp_path: Path) -> None:
    chosen = attempt_configuration({}, tmp_path)
    for name in ("spark.network.timeout", "spark.rpc.askTimeout", "spark.python.authenticate.socketTimeout"):
        assert chosen[name] == "3600s"


def test_a_local_session_stays_on_loopback_and_a_remote_one_does_not(tmp_path: Path) -> None:
    assert attempt_configuration({}, tmp_path)["spark.driver.bindAddress"] == "127.0.0.1"
    remote = attempt_configuration({"RUN_SPARK_MASTER": "spark://spark:7077", "RUN_SPARK_MEMORY": "2g"}, tmp_path)
    assert (remote["spark.master"], remote["spark.driver.memory"]) == ("spark://spark:7077", "2g")
    assert "spark.driver.bindAddress" not in remote


def test_fields_that_a_column_would_lose_are_named_with_dots() -> None:
    inner = {"type": "struct", "fields": [{"name": "b", "type": "long"}, {"name": "c", "type": "long"}]}
    known = {"type": "struct", "fields": [{"name": "c", "type": "long"}]}

    def wrapped(kind: Any) -> dict[str, Any]:
        within = {"a": kind, "l": {"type": "array", "elementType": kind}}
        return {"type": "struct", "fields": [{"name": name, "type": one} for name, one in within.items()]}

    found = wrapped(inner)
    found["fields"].append({"name": "more", "type": "long"})
    assert list(unknown_fields(found, wrapped(known))) == ["a.b", "l.b", "more"]
    of_maps = wrapped({"type": "map", "keyType": "string", "valueType": "long"})
    assert list(unknown_fields(wrapped(inner), of_maps)) == [], "a map has any keys"
    keyed = {"type": "struct", "fields": [{"name": "any", "type": inner}]}
    of_structs = wrapped({"type": "map", "keyType": "string", "valueType": known})
    assert list(unknown_fields(wrapped(keyed), of_structs)) == ["a.any.b", "l.any.b"]
    assert list(unknown_fields(wrapped(inner), wrapped("string"))) == [], "a text keeps the object"


class _Thrown(Exception):
    def __init__(self, *messages: str) -> None:
        super().__init__(messages[0])
        self.java_exception = _Cause(list(messages))


class _Cause:
    def __init__(self, messages: list[str]) -> None:
        self._messages = messages

    def getMessage(self) -> str:  # noqa: N802  Java's name
        return self._messages[0]

    def getCause(self) -> "_Cause | None":  # noqa: N802  Java's name
        return _Cause(self._messages[1:]) if self._messages[1:] else None


READING = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/a%20b.csv.  SQLSTATE: KD001"


def test_spark_s_errors_name_the_file_and_the_row() -> None:
    malformed = file_to_blame(
        _Thrown(
            READING,
            "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected: [4,b].\nx",
            "[MALFORMED_CSV_RECORD] Malformed CSV record: 4,b,k SQLSTATE: KD000",
        ),
        {},
    )
    assert malformed is not None
    assert isinstance(malformed.why, MalformedRows)
    assert malformed.path == "/in/a b.csv"
    assert str(malformed) == ("/in/a b.csv: Malformed records are detected: [4,b]. Malformed CSV record: 4,b,k")
    drift = file_to_blame(
        _Thrown(READING, "CSV header does not conform to the schema.\n Header: x, z\n Schema: x, y\nCSV file: f"), {}
    )
    assert drift is not None
    assert isinstance(drift.why, SchemaDrift)
    assert str(drift) == "/in/a b.csv: the header is (x, z), the columns are (x, y)"
    unread = file_to_blame(_Thrown(READING, "Input/output error"), {})
    assert unread is not None
    assert isinstance(unread.why, ReadFailed)
    assert file_to_blame(ValueError("something else"), {}) is None


TWO = {"n": "int", "text": "string"}


@pytest.mark.parametrize(
    ("form", "text", "values", "said"),
    [
        ({}, "x,y", {"text": "y"}, "column n: 'x' is not int"),
        ({}, "1,y,z", {"n": 1, "text": "y"}, "3 fields where there are 2 columns"),
        ({}, "1", {"n": 1}, "1 fields where there are 2 columns"),
        ({}, '1,"y', {"n": 1}, OTHER),
        ({"delimiter": "::"}, "x::y", {"text": "y"}, "column n: 'x' is not int"),
        ({"null_value": "NA"}, "NA,y,z", {"text": "y"}, "3 fields where there are 2 columns"),
        ({"format": "tbl", "columns": "n INT, text STRING"}, "1|y", {}, "it does not end with '|'"),
        ({"format": "tbl", "columns": "n INT, text STRING"}, "x|y|", {"text": "y"}, "column n: 'x' is not int"),
        ({"format": "json"}, '{"n": "x"}', {}, "column n: 'x' is not int"),
        ({"format": "json"}, "[1]", {}, "not a JSON object"),
        ({"format": "json"}, '{"n": ', {}, "not JSON: Expecting value: line 1 column 7 (char 6)"),
        ({}, f"{'x' * 500},y", {}, f"column n: '{'x' * 99}... is not int"),
    ],
)
def test_a_malformed_row_s_reason_names_the_column_and_the_value(
    form: dict[str, Any], text: str, values: dict[str, Any], said: str
) -> None:
    assert reason(Form(**{"format": "csv"} | form), TWO, text, values) == said
