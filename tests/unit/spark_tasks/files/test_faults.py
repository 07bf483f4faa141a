"""Which file an error of Spark is about, in a sentence."""

from pathlib import Path

import pytest

from spark_tasks.files.faults import FileDamaged, MalformedRows, SchemaDrift, file_to_blame
from spark_tasks.files.listing import Source

STACK = "".join(f"\n\tat org.apache.spark.sql.Reader{line}.read(Reader.scala:{line})" for line in range(40))
PLACE = Path("/scratch/fetched/000001-a b.csv")
PLACES = {PLACE: Source("s3://landing/a b.csv", 7)}
READING = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///scratch/fetched/000001-a%20b.csv. "


class Java:
    """A Java exception with its causes."""

    def __init__(self, name: str, message: str | None, cause: "Java | None" = None) -> None:
        self._name, self._message, self._cause = name, message, cause

    def getMessage(self) -> str | None:  # noqa: N802 - Java's name
        return self._message

    def toString(self) -> str:  # noqa: N802 - Java's name
        return self._name

    def getCause(self) -> "Java | None":  # noqa: N802 - Java's name
        return self._cause


class Raised(Exception):
    """What py4j raises."""

    def __init__(self, origin: Java) -> None:
        super().__init__("An error occurred while calling o1.save." + STACK)
        self.java_exception = origin


@pytest.mark.parametrize(
    ("cause", "kind", "sentence"),
    [
        (Java("java.io.EOFException", "Unexpected end" + STACK), FileDamaged, "s3://landing/a b.csv: Unexpected end"),
        (
            Java("java.lang.NullPointerException", None),
            FileDamaged,
            "s3://landing/a b.csv: java.lang.NullPointerException",
        ),
        (
            Java("x", "CSV header does not conform to the schema, in a form that is not known" + STACK),
            SchemaDrift,
            "s3://landing/a b.csv: CSV header does not conform to the schema, in a form that is not known",
        ),
        (
            Java(
                "x", "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected: [1,x]." + STACK
            ),
            MalformedRows,
            "s3://landing/a b.csv: Malformed records are detected: [1,x].",
        ),
    ],
)
def test_a_file_is_named_by_its_source_with_a_reason_in_one_line(
    cause: Java, kind: type[Exception], sentence: str
) -> None:
    bad = file_to_blame(Raised(Java("org.apache.spark.SparkException", READING + STACK, cause)), PLACES)
    assert bad is not None
    assert bad.path == "s3://landing/a b.csv"
    assert isinstance(bad.why, kind)
    assert str(bad.why).startswith(sentence)
    assert "\n" not in str(bad.why)
    assert "\tat " not in str(bad.why)


def test_what_is_about_no_file_is_not_explained() -> None:
    assert file_to_blame(Raised(Java("java.lang.OutOfMemoryError", "Java heap space")), PLACES) is None
