"""Reads a batch of files with Spark, with one schema, and without silently losing a row.

A column that a file has and the table does not, or a header in another order, raises `SchemaDrift`. A row that does not
fit the columns raises `MalformedRows`, or is marked with its text. Both name the file.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_tasks.files import exact, layouts
from spark_tasks.files.faults import BadFile, SchemaDrift
from spark_tasks.files.form import Form, options
from spark_tasks.files.layouts import Layout, fitted
from spark_tasks.files.listing import Source
from spark_tasks.files.opening import header_of
from spark_tasks.files.staging import for_spark
from spark_tasks.sql.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

CORRUPT = "_rota_malformed"
"""The column into which Spark puts the text of a row that it cannot read."""

_LINE = "_rota_line"


def infer(spark: "SparkSession", form: Form, places: Mapping[Path, Source]) -> "StructType":
    """Return the columns that Spark infers from CSV or JSON files, in one pass over them.

    Raises `BadFile` for a JSON file in which an object has a key twice, or two that differ in case only: Spark would
    take one of the values.
    """
    from pyspark.errors import AnalysisException

    reader = _reader(spark, form).options(mode="DROPMALFORMED", inferSchema=True)
    try:
        return reader.load(_paths(places)).schema
    except AnalysisException as error:
        if error.getCondition() != "COLUMN_ALREADY_EXISTS":
            raise
        for place, source in places.items() if len(places) > 1 else ():
            infer(spark, form, {place: source})
        name = next(iter(places.values())).path
        key = (error.getMessageParameters() or {}).get("columnName", "")
        raise BadFile(
            name,
            SchemaDrift(
                f"{name} has objects with the key {key} twice, or with another that differs from it in case only: "
                "which one is meant is not known"
            ),
        ) from None


def layouts_of(spark: "SparkSession", form: Form, places: Mapping[Path, Source]) -> list[Layout] | None:
    """Group the files by the columns that they have. Returns None if all are read with the table's columns.

    The types of CSV columns are inferred if the task allows the table's columns to change, else they are text. Raises
    `BadFile`.
    """
    if form.format in layouts.KINDS:
        return layouts.layouts(spark, form.format, places)
    if not form.by_name:
        return None
    if form.format == "json":
        return [Layout(infer(spark, form, places), tuple(places))]
    alike: dict[tuple[str, ...], list[Path]] = defaultdict(list)
    for place, source in places.items():
        alike[header_of(form, place, source)].append(place)
    return [
        Layout(_csv_columns(spark, form, names, {place: places[place] for place in some}), tuple(some))
        for names, some in alike.items()
    ]


def _csv_columns(
    spark: "SparkSession", form: Form, names: Sequence[str], places: Mapping[Path, Source]
) -> "StructType":
    from pyspark.sql.types import StringType, StructField, StructType

    if form.schema_evolution == "fail" or not names:
        return StructType([StructField(name, StringType()) for name in names])
    found = infer(spark, form, places).fields
    return StructType([StructField(name, field.dataType) for name, field in zip(names, found, strict=True)])


def load_files(
    spark: "SparkSession",
    form: Form,
    schema: "StructType",
    places: Mapping[Path, Source],
    found: Sequence[Layout] | None,
) -> "DataFrame":
    """Return the rows of the files, which have the layouts `found`, with the columns `schema`.

    If `marks(form)`, the rows are those of `load_marked`; else the Spark job fails at a row that does not fit.
    """
    if form.format in layouts.KINDS:
        assert found is not None
        return layouts.load_layouts(spark, form.format, schema, found)
    if marks(form):
        return load_marked(spark, form, schema, places, found)

    def rows(columns: "StructType", some: Iterable[Path]) -> "DataFrame":
        reader = _reader(spark, form).schema(exact.columns_as_text(columns, form))
        return exact.raising(reader.option("mode", "FAILFAST").load(_paths(some)), columns, form)

    if found is None:
        return rows(schema, places)
    parts = [(one, text_columns(one, schema)) for one in found]
    return layouts.united([fitted(rows(columns, one.places), columns, schema) for one, columns in parts])


def text_columns(layout: Layout, schema: "StructType") -> "StructType":
    """Return the columns with which text files of a layout are read: the files' own columns, with the table's types."""
    from pyspark.sql.types import StructType

    if not layout.columns.fields:  # of an empty file
        return schema
    ours = {field.name: field for field in schema.fields}
    return StructType([ours.get(field.name, field) for field in layout.columns.fields])


def marks(form: Form) -> bool:
    """Whether rows that do not fit are marked.

    TBL always has marks, since Spark reads it as plain lines. CSV and JSON are read faster without marks.
    """
    return form.format == "tbl" or (form.is_text and form.malformed == "quarantine")


def load_marked(
    spark: "SparkSession",
    form: Form,
    schema: "StructType",
    places: Mapping[Path, Source],
    found: Sequence[Layout] | None,
) -> "DataFrame":
    """Return the rows of text files, with the additional column `CORRUPT`: the text of a row that does not fit, else
    null.
    """
    from pyspark.sql.types import StringType, StructType

    def rows(columns: "StructType", some: Iterable[Path]) -> "DataFrame":
        wider = StructType([*exact.columns_as_text(columns, form)]).add(CORRUPT, StringType())
        if form.format == "tbl":
            return _tbl(spark, form, columns, wider, some)
        reader = _reader(spark, form).schema(wider).option("mode", "PERMISSIVE")
        read = reader.option("columnNameOfCorruptRecord", CORRUPT).load(_paths(some))
        return exact.marking(read, columns, form, CORRUPT)

    if found is None:
        return rows(schema, places)
    parts = [(one, text_columns(one, schema)) for one in found]
    return layouts.united([fitted(rows(columns, one.places), columns, schema, CORRUPT) for one, columns in parts])


def _reader(spark: "SparkSession", form: Form) -> "DataFrameReader":
    if form.encoding == "windows-1252":
        # By default Spark 4 accepts six encodings. This setting allows all of Java's.
        spark.conf.set("spark.sql.legacy.javaCharsets", "true")
    reader = spark.read.format(form.format).options(**options(form))
    return reader.option("enforceSchema", False) if form.format == "csv" else reader


def _paths(places: Iterable[Path]) -> list[str]:
    return [for_spark(place) for place in places]


def _tbl(
    spark: "SparkSession", form: Form, columns: "StructType", wider: "StructType", places: Iterable[Path]
) -> "DataFrame":
    """Read files in which the delimiter also ends each line: Spark's CSV reader has no option for that."""
    from pyspark.sql import functions as f

    # This optimizer rule would parse each line once for each column.
    spark.conf.set("spark.sql.optimizer.enableCsvExpressionOptimization", "false")
    line, end = f.col("value"), f.lit(form.between)
    fields = line.substr(f.lit(1), f.length(line) - len(form.between))
    ddl = ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in wider.fields)
    chosen = {name: str(value) for name, value in options(form).items()}
    chosen |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    rows = spark.read.text(_paths(places)).filter(f.length(f.trim(line)) > 0)
    rows = rows.select(line, f.endswith(line, end).alias("ended"), f.from_csv(fields, ddl, chosen).alias("row"))
    fits = f.col("ended") & f.col(f"row.{CORRUPT}").isNull()
    read_as = [f.col(f"row.{quoted(field.name)}").alias(field.name) for field in wider.fields[:-1]]
    read = rows.select(*read_as, f.when(~fits, line).alias(CORRUPT), line.alias(_LINE))
    return exact.marking(read, columns, form, CORRUPT, f.col(_LINE)).drop(_LINE)


def check_fields(
    spark: "SparkSession",
    form: Form,
    schema: "StructType",
    places: Mapping[Path, Source],
    found: Sequence[Layout] | None,
) -> None:
    """Raise `BadFile` if a JSON file has a field that the table does not have: Spark would silently drop it.

    With `rescue`, only unknown fields within the table's columns are errors, because all others are kept.
    """
    if form.format != "json":
        return
    known, columns = schema.jsonValue(), set(schema.fieldNames())

    def extra(inferred: "StructType") -> list[str]:
        more = set(unknown_fields(inferred.jsonValue(), known))
        return sorted(path for path in more if not form.rescue or path.partition(".")[0] in columns)

    if not extra(found[0].columns if found else infer(spark, form, places)):
        return
    for place, source in places.items():
        if names := extra(infer(spark, form, {place: source})):
            why = SchemaDrift(f"{source.path} has fields that the table does not have: {', '.join(names)}")
            raise BadFile(source.path, why)


def unknown_fields(found: Any, known: Any, within: str = "") -> Iterator[str]:
    """Yield the dotted names of fields of the type `found` that a column of the type `known` would lose.

    Both types are in Spark's and Delta's JSON form. A text column keeps an object as it is written, and a map keeps the
    fields as keys.

    >>> list(unknown_fields({"type": "struct", "fields": [{"name": "a", "type": "long"}]}, {"type": "struct"}))
    ['a']
    """
    if not isinstance(found, dict) or not isinstance(known, dict):
        return
    if found["type"] == "array":
        yield from unknown_fields(found["elementType"], known.get("elementType"), within)
    elif known["type"] == "map":
        for field in found.get("fields", ()):
            yield from unknown_fields(field["type"], known["valueType"], f"{within}{field['name']}.")
    elif known["type"] == "struct":
        ours = {field["name"]: field["type"] for field in known.get("fields", ())}
        for field in found.get("fields", ()):
            if field["name"] not in ours:
                yield within + field["name"]
            else:
                yield from unknown_fields(field["type"], ours[field["name"]], f"{within}{field['name']}.")
