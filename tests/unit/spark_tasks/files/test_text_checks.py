"""What is found in text files before Spark reads them. Without Spark."""

import gzip
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from spark_tasks.files.faults import BadFile
from spark_tasks.files.form import Form
from spark_tasks.files.listing import Source
from spark_tasks.files.opening import LINE_MAX_BYTES
from spark_tasks.files.quoting import problem_in, well_quoted
from spark_tasks.files.text_checks import _CHUNK_BYTES, check_text, clean_text

LONG = b"n,text\n1," + b"x" * (3 * LINE_MAX_BYTES) + b"\n"


def _check(folder: Path, name: str, content: bytes, **form: Any) -> str | None:
    path = folder / name
    path.write_bytes(content)
    try:
        check_text(Form(**{"format": "csv"} | form), {path: Source("/in/" + name, len(content))})
    except BadFile as bad:
        assert bad.path == "/in/" + name
        return str(bad)
    return None


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv", LONG), ("a.csv.gz", gzip.compress(LONG)), ("a.csv.zst", zstandard.compress(LONG))],
)
def test_a_line_that_spark_would_not_survive_is_found(tmp_path: Path, name: str, content: bytes) -> None:
    assert (
        _check(tmp_path, name, content)
        == f"/in/{name}, line 2: it is longer than {LINE_MAX_BYTES} bytes, the most that is read"
    )


def test_long_files_of_short_lines_pass_and_so_do_arrays_in_one_line(tmp_path: Path) -> None:
    assert _check(tmp_path, "a.csv", b"1,x\r" * LINE_MAX_BYTES) is None
    assert _check(tmp_path, "a.json", LONG, format="json", multiline=True) is None
    assert _check(tmp_path, "a.avro", LONG, format="avro") is None


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b'n,text\n1,"a\nb"\n', 2),
        (b'n,text\n1,a\n2,b\r\n3,"c', 4),
        (b'n,text\n1,"a ""b""\n', 2),
        (b"1,x\n" * 400_000 + b'2,"y\n3,z"\n', 400_001),
    ],
)
def test_a_quoted_field_that_does_not_end_in_its_line_is_found(tmp_path: Path, content: bytes, line: int) -> None:
    said = _check(tmp_path, "a.csv", content)
    assert said is not None
    assert said.startswith(f"/in/a.csv, line {line}: a quoted field does not end")


@pytest.mark.parametrize("text", [b'"1","a ""b"" c"\r\n\n', b'"","",""\n""\n', b'1,"a,b"\n', b"1,\n", b'1,""\n', b""])
def test_whole_quotes_pass(tmp_path: Path, text: bytes) -> None:
    assert _check(tmp_path, "a.csv", text) is None
    assert _check(tmp_path, "a.csv", text, multiline=True) is None


def test_where_fields_may_contain_line_breaks_the_last_quote_must_end(tmp_path: Path) -> None:
    assert _check(tmp_path, "a.csv", b'1,"a\nb"\n', multiline=True) is None
    said = _check(tmp_path, "a.csv", b'n,text\n1,"a\nb"\n2,"c\n3,d\n', multiline=True)
    assert said is not None
    assert said.startswith("/in/a.csv, line 4: a quoted field does not end")


def test_a_file_that_is_cut_short_is_left_to_spark(tmp_path: Path) -> None:
    assert _check(tmp_path, "a.csv.gz", gzip.compress(LONG)[:200]) is None


def test_bytes_that_are_not_text_are_named_by_their_line(tmp_path: Path) -> None:
    text = "n,text\n1,\ufffd\n".encode() + b"2,caf\xe9\n"
    said = _check(tmp_path, "a.csv", text)
    assert said == "/in/a.csv, line 3: its bytes are not text in utf-8: set `encoding`, or correct the file"
    assert _check(tmp_path, "a.csv", text, encoding="iso-8859-1") is None
    assert _check(tmp_path, "a.json", b'[{"a":\n"\xe9"}]', multiline=True, format="json") is not None


@pytest.mark.parametrize("before", range(-3, 1))
def test_characters_may_lie_anywhere(tmp_path: Path, before: int) -> None:
    """Also where one piece of a file ends and the next begins; but not be cut by the end of the file."""
    lines = b"x" * 127 + b"\n"
    text = lines * (_CHUNK_BYTES // len(lines))
    text = text[: len(text) + before - 1] + b"\n"
    assert _check(tmp_path, "a.csv", text + "\U0001f600\n".encode()) is None
    said = _check(tmp_path, "a.csv", text + "\U0001f600".encode()[:3])
    assert said is not None
    last = text.count(b"\n") + 1
    assert said.startswith(f"/in/a.csv, line {last}: its bytes are not text")


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        (b'n,text\n1,5" pipe\n', 2, "a quote is in a field that is not in quotes"),
        (b'n,text\n1,"a"\n2,"b"c\n', 3, "a field goes on behind its quotes"),
        (b'n,text\n1,"a\\"b"\n', 2, "a field goes on behind its quotes: set `escape`"),
        (b"n,text\n1,a\rb\n", 2, "it has a carriage return within it"),
        (b'n,text\n1,"a\rb"\n', 2, "it has a carriage return within it"),
        (b"n,text\n1,a\0b\n", 2, "it has a NUL"),
    ],
)
def test_a_line_that_would_be_read_otherwise_than_it_is_written_is_malformed(
    tmp_path: Path, content: bytes, line: int, said: str
) -> None:
    assert str(_check(tmp_path, "a.csv", content)).startswith(f"/in/a.csv, line {line}: {said}")
    place = tmp_path / "b.csv.gz"
    place.write_bytes(gzip.compress(content + b"7,whole\n"))
    form = Form(format="csv", malformed="quarantine")
    clean, rows = clean_text(form, {place: Source("/in/b.csv.gz", 1)}, tmp_path / "clean")
    [(copy, source)] = clean.items()
    assert source == Source("/in/b.csv.gz", 1)
    lines = content.split(b"\n")
    assert [(row.file, row.line, row.text.encode()) for row in rows] == [("/in/b.csv.gz", line, lines[line - 1])]
    lines[line - 1] = b""
    assert copy.read_bytes() == b"\n".join(lines) + b"7,whole\n"


def test_what_is_said_by_options_is_read_as_they_say(tmp_path: Path) -> None:
    assert _check(tmp_path, "a.csv", b'1,"a\\"b,\\\\"\n2,"c"\n', escape="\\") is None
    assert "behind its quotes" in str(_check(tmp_path, "a.csv", b'1,"a""b"\n', escape="\\"))
    assert "does not end" in str(_check(tmp_path, "a.csv", b'1,"a\\"\n', escape="\\"))
    assert _check(tmp_path, "a.csv", b'1,5" pipe\n2,"\n', quotes=False) is None
    assert _check(tmp_path, "a.csv", b"n,text\r1,a\r2,b\r") is None, "lines may end in a carriage return"


def test_a_header_that_is_wrong_fails_its_file(tmp_path: Path) -> None:
    place = tmp_path / "a.csv"
    place.write_bytes(b'n,5" pipe\n1,a\n')
    with pytest.raises(BadFile, match="line 1: a quote is in a field"):
        clean_text(Form(format="csv", malformed="quarantine"), {place: Source("/in/a.csv", 1)}, tmp_path / "clean")


def test_records_of_several_lines_are_whole_wherever_a_piece_of_the_file_ends(tmp_path: Path) -> None:
    record = b'1,"' + b"x\n" * 50 + b'"\n'
    many = record * (2 * _CHUNK_BYTES // len(record))
    assert _check(tmp_path, "a.csv", many, multiline=True) is None
    said = _check(tmp_path, "a.csv", many + b'2,a"b\n', multiline=True)
    assert said is not None
    last = many.count(b"\n") + 1
    assert said.startswith(f"/in/a.csv, line {last}: a quote is in a field")


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        (rb'{"a":"\ud83d\ude00"}', True),
        (rb'{"a":"\\ud83d"}', True),
        (rb'{"a":"\ud83d"}', False),
        (rb'{"a":"\ude00\ud83d"}', False),
        (rb'{"a":"\u20ac"}', True),
    ],
)
def test_half_of_a_pair_of_surrogates_is_no_text(tmp_path: Path, text: bytes, fine: bool) -> None:
    assert (_check(tmp_path, "a.json", b"{}\n" + text + b"\n", format="json") is None) == fine
    assert (_check(tmp_path, "a.json", b"[" + text + b"]", format="json", multiline=True) is None) == fine


@given(st.lists(st.sampled_from([b"a", b",", b'"', b"\n", b"\\"])).map(b"".join), st.sampled_from([None, b"\\"]))
def test_a_look_at_all_quotes_at_once_finds_what_a_look_at_each_line_finds(text: bytes, escape: bytes | None) -> None:
    each = all(problem_in(line, b",", escape) is None for line in text.split(b"\n"))
    found = well_quoted(text, b",", escape, breaks=False)
    # With an escape outside of quotes, the look at all may see less, and each line is looked at.
    assert found == each or (escape is not None and each)
