"""Files that are not as they should be, with real Spark: each fails in a stated way, and the others go in."""

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from deltalake import DeltaTable

from spark_tasks.ingest.attempt import IngestAttempt
from spark_tasks.ingest.errors import FilesRefused, FilesUnfit
from spark_tasks.ingest.kind import Ingest
from spark_tasks.ingest.writing import BatchWriter
from testkit.spark.ingests import House

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.more]

COLUMNS: dict[str, Any] = {"columns": "n INT, text STRING", "batch_files": 20}


def _put(house: House, **files: bytes) -> None:
    for name, content in files.items():
        (house.folder / "in" / f"{name}.csv").write_bytes(content)


def _texts(house: House) -> dict[int, str | None]:
    rows = DeltaTable(house.table).to_pyarrow_table().to_pylist()
    return {row["n"]: row["text"] for row in rows}


def test_odd_but_whole_files_go_in(house: House) -> None:
    _put(
        house,
        mixed=b"n,text\r\n1,a\n2,b\r\n",
        returns=b"n,text\r3,c\r4,d\r",
        marked=b"\xef\xbb\xbfn,text\n5,e\n",
        empty=b"",
        header=b"n,text\n",
        no_end=b"n,text\n6,f",
        replaced="n,text\n7,\ufffd\n".encode(),
    )
    result = Ingest().run(house.attempt(**COLUMNS))
    assert (result["rows"], result["files"], result["batches"]) == (7, 7, 1)
    assert _texts(house) == {1: "a", 2: "b", 3: "c", 4: "d", 5: "e", 6: "f", 7: "\ufffd"}


def test_a_row_that_is_not_as_rfc_4180_says_is_malformed_and_no_other_row_with_it(house: House) -> None:
    _put(house, a=b'n,text\n1,5" pipe\n2,"b"x\n3,c\rd\n4,e\0f\n5,"a ""b"" c,"\nx,6\n7,g\n')
    with pytest.raises(FilesUnfit, match=r"a\.csv, line 2: a quote is in a field that is not in quotes"):
        Ingest().run(house.attempt(**COLUMNS))
    result = Ingest().run(house.attempt(token=2, malformed="quarantine", **COLUMNS))
    assert (result["rows"], result["quarantined"]) == (2, 5)
    assert _texts(house) == {5: 'a "b" c,', 7: "g"}
    kept = DeltaTable(f"{house.table}_quarantine").to_pyarrow_table().sort_by("line").to_pylist()
    assert [(row["line"], row["text"]) for row in kept] == [
        (2, '1,5" pipe'),
        (3, '2,"b"x'),
        (4, "3,c\rd"),
        (5, "4,e\0f"),
        (7, "x,6"),
    ]
    assert {row["file"] for row in kept} == {f"{house.folder}/in/a.csv"}


@pytest.mark.parametrize("multiline", [False, True])
def test_quotes_are_read_as_options_say(house: House, multiline: bool) -> None:
    _put(house, a=b'n,text\n1,"say \\"hi\\", \\\\"\n2,"a\\nb"\n3,c\n')
    Ingest().run(house.attempt(escape="\\", multiline=multiline, **COLUMNS))
    assert _texts(house) == {1: 'say "hi", \\', 2: "a\\nb", 3: "c"}
    if not multiline:
        _put(house, b=b'n,text\n4,5" pipe\n5,"\n')
        Ingest().run(house.attempt(token=2, quotes=False, source=f"{house.folder}/in/b.csv", **COLUMNS))
        assert (_texts(house)[4], _texts(house)[5]) == ('5" pipe', '"')


def test_ragged_rows_are_malformed(house: House) -> None:
    _put(house, ragged=b"n,text\n1\n2,b,x\n\n3,c\n")
    with pytest.raises(FilesUnfit, match=r"ragged\.csv, line 2: 1 fields where there are 2 columns"):
        Ingest().run(house.attempt(**COLUMNS))
    result = Ingest().run(house.attempt(token=2, malformed="quarantine", **COLUMNS))
    assert (result["rows"], result["quarantined"]) == (1, 2)


def test_files_that_would_be_read_wrongly_fail_alone(house: House) -> None:
    house.put_csv(0)
    _put(
        house,
        latin=b"n,text\n31,caf\xe9\n",
        wide="n,text\n32,a\n".encode("utf-16"),
        open=b'n,text\n33,"a\nb"\n',
        long=b"n,text\n34," + b"x" * 100_000_000 + b"\n",
        turned=b"text,n\nx,35\n",
    )
    with pytest.raises(FilesUnfit, match="5 of 6 files") as told:
        Ingest().run(house.attempt(**COLUMNS))
    for said in (
        "latin.csv, line 2: its bytes are not text in utf-8",
        "wide.csv, line 1: its bytes are not text in utf-8",
        "open.csv, line 2: a quoted field does not end in its line",
        "long.csv, line 2: it is longer than 4194304 bytes",
        "turned.csv: the header is (text, n), the columns are (n, text)",
    ):
        assert said in str(told.value)
    assert house.numbers() == list(range(10))
    (house.folder / "in" / "long.csv").unlink()
    _put(house, turned=b"n,text\n35,x\n")
    with pytest.raises(FilesUnfit, match="2 of 5 files"):
        Ingest().run(house.attempt(token=2, encoding="windows-1252", **COLUMNS))
    assert _texts(house)[31] == "café"
    assert _texts(house)[35] == "x"


def test_line_breaks_in_fields_are_read_where_the_task_says_so(house: House) -> None:
    _put(house, good=b'n,text\n1,"a\r\nb"\n2,c\n', open=b'n,text\n3,"d\n4,e\n')
    with pytest.raises(FilesUnfit, match=r"1 of 2 files.*open\.csv, line 2: a quoted field does not end"):
        Ingest().run(house.attempt(multiline=True, **COLUMNS))
    assert {n: text and text.split() for n, text in _texts(house).items()} == {1: ["a", "b"], 2: ["c"]}


def test_a_growing_file_waits_for_the_next_attempt_and_the_others_go_in(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.put_csv(0)
    house.put_csv(1)
    write = BatchWriter.write

    def beside_a_writer(self: BatchWriter, *args: Any, **kwargs: Any) -> Any:
        with (house.folder / "in" / "01.csv").open("a") as out:
            out.write("20,more\n")
        return write(self, *args, **kwargs)

    with (
        monkeypatch.context() as patch,
        pytest.raises(FilesRefused, match=r"1 of 2 files.*01\.csv had \d+ bytes") as told,
    ):
        patch.setattr(BatchWriter, "write", beside_a_writer)
        Ingest().run(house.attempt())
    assert not isinstance(told.value, FilesUnfit), "the next attempt may find it complete"
    assert house.numbers() == list(range(10))
    assert Ingest().run(house.attempt(token=2))["files"] == 2
    assert house.numbers() == [*range(20), 20, 20]


def test_a_file_that_is_deleted_after_it_was_listed_is_left_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.put_csv(0)
    house.put_csv(1)
    run = IngestAttempt.run

    def after_a_deletion(self: IngestAttempt, work: Any) -> None:
        (house.folder / "in" / "00.csv").unlink()
        run(self, work)

    with monkeypatch.context() as patch, pytest.raises(FilesRefused, match=r"1 of 2 files.*00\.csv was there when"):
        patch.setattr(IngestAttempt, "run", after_a_deletion)
        Ingest().run(house.attempt())
    assert house.numbers() == list(range(10, 20))
    assert Ingest().run(house.attempt(token=2))["files"] == 1
