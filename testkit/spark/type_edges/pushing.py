"""Puts the edges of a source where an `etl` reads them, and reads what a sink then has, in the form of `Edge.text`."""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spark_tasks.etl.params import EtlParams
from testkit.fake_context import FakeContext
from testkit.servers.api_server import Response, api_server
from testkit.servers.webhook_receiver import SECRET, webhook_receiver
from testkit.spark.databases import EtlDatabase
from testkit.spark.etl_sinks import run_attempt
from testkit.spark.type_edges import Edge, TypeEdges
from testkit.spark.type_edges import postgres as of_postgres

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Columns = Mapping[str, TypeEdges]
"""The columns of a source, and their types."""

Rows = Sequence[Mapping[str, Edge]]
"""The rows of a source: for some of its columns, a value. Their numbers, from 0, are the column `id`."""

Cells = dict[tuple[int, str], str | None]
"""What a sink has: a text by the number of a row and the name of a column."""

_CYCLE: Final = (400, 146_097)
"""The years after which the calendar comes again, and their days."""

_EPOCH: Final = date(1970, 1, 1).toordinal()
_DAY_US: Final = 86_400_000_000


def day_text(days: int) -> str:
    """A day from 1970, in the calendar of Gregory, also beyond the years that Python knows.

    >>> day_text(0), day_text(-719529), day_text(2932897)
    ('1970-01-01', '0002-12-31 BC', '10000-01-01')
    """
    cycles, ordinal = divmod(days + _EPOCH - 1, _CYCLE[1])
    at = date.fromordinal(ordinal + 1)
    year = at.year + cycles * _CYCLE[0]
    shown, era = (year, "") if year > 0 else (1 - year, " BC")
    return f"{shown:04d}-{at.month:02d}-{at.day:02d}{era}"


def time_text(microseconds: int, zone: str) -> str:
    """A time in microseconds from 1970.

    >>> time_text(-1, "+00"), time_text(0, "")
    ('1969-12-31 23:59:59.999999+00', '1970-01-01 00:00:00')
    """
    days, within = divmod(microseconds, _DAY_US)
    day, _, era = day_text(days).partition(" ")
    clock = (datetime.min + timedelta(microseconds=within)).time().isoformat()
    clock = clock.rstrip("0").ljust(8, "0") if "." in clock else clock
    return f"{day} {clock}{zone}" + (f" {era}" if era else "")


def number_text(value: float, single: bool) -> str:
    """A floating-point number with the fewest digits that tell it apart, as PostgreSQL writes it."""
    if value != value or value in (float("inf"), -float("inf")):  # noqa: PLR0124  NaN
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    text = repr(float(value)) if not single else str(np.float32(value))
    mantissa, e, exponent = text.partition("e")
    mantissa = mantissa.removesuffix(".0")
    return mantissa if not e else f"{mantissa}e{exponent[0]}{exponent[1:].zfill(2)}"


def decimal_text(value: Decimal) -> str:
    """A decimal without the zeros that its scale adds."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def arrow_text(value: "pa.Scalar") -> str | None:
    """A value of Arrow."""
    import pyarrow as pa
    from pyarrow import types

    kind = value.type
    if not value.is_valid:
        return None
    if types.is_boolean(kind):
        return "true" if value.as_py() else "false"
    if types.is_date32(kind):
        return day_text(value.cast(pa.int32()).as_py())
    if types.is_timestamp(kind):
        assert kind.unit == "us"
        return time_text(value.cast(pa.int64()).as_py(), "+00" if kind.tz else "")
    if types.is_decimal(kind):
        return decimal_text(value.as_py())
    if types.is_floating(kind):
        return number_text(value.as_py(), types.is_float32(kind))
    if types.is_binary(kind) or types.is_large_binary(kind):
        return "\\x" + bytes(value.as_py()).hex()
    return nested_text(value.as_py())


def nested_text(value: Any) -> str:
    """A text as it is; a list, a map or a struct as JSON without blanks."""
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        value = dict(value)  # a map
    return str(value) if isinstance(value, str) else json.dumps(value, separators=(",", ":"), default=_moment)


def _moment(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def kept_text(value: Any, spark: str) -> str | None:
    """A value that was written as SQLite or JSON has it, of a column that has that type in Spark."""
    if value is None:
        return None
    if spark in ("float", "double"):
        found = float(value)
        return (
            "0"
            if isinstance(value, float) and found == 0 and str(found) == "0.0"
            else number_text(found, spark == "float")
        )
    if spark.startswith("decimal"):
        return decimal_text(Decimal(value))
    if spark == "boolean":
        return "true" if value else "false"
    if spark in ("timestamp", "timestamp_ntz"):
        at = str(value).replace("T", " ").removesuffix("Z")
        return at.rstrip("0").removesuffix(".") + ("+00" if spark == "timestamp" else "")
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    return nested_text(json.loads(value) if "<" in spark and isinstance(value, str) else value)


class Sinks:
    """The sinks of a test, in a folder, a database and a receiver of webhooks. `stack` closes what sources open."""

    def __init__(self, database: EtlDatabase, folder: Path, stack: ExitStack) -> None:
        self.database = database
        self.stack = stack
        self.receiver = stack.enter_context(webhook_receiver())
        self.folder = folder
        self.secrets = database.secrets | {"signs": SECRET}

    def params(self, sink: str, name: str) -> dict[str, Any]:
        """The params of an `etl` for the sink, in which the target has that name."""
        target = str(self.folder / sink / name)
        shared = {"shared": True}
        match sink:
            case "postgres":
                return {"sink": self.database.end(table=name, mode="append")}
            case "postgres-sql":
                sql = {"sql": "SELECT * FROM source"}
                return {"sink": self.database.end(table=f"{name}_sql", mode="append"), "transform": sql}
            case "sqlite":
                (self.folder / sink).mkdir(exist_ok=True)
                return {"sink": {"type": sink, "path": target + ".db", "table": "t", "mode": "append"} | shared}
            case "webhook":
                hook = {"type": sink, "url": self.receiver.url, "secret": {"secret": "signs"}, "batch_rows": 1000}
                self.receiver.taken.clear()
                return {"sink": hook | {"ledger": target} | shared}
            case "delta":
                return {"sink": {"type": sink, "table": target, "mode": "append"} | shared}
        return {"sink": {"type": sink, "folder": target} | shared}

    def cells(self, sink: str, name: str, columns: Columns) -> Cells:
        """What is in the target of that name."""
        target = self.folder / sink / name
        found: list[dict[str, str | None]]
        match sink:
            case "postgres" | "postgres-sql":
                table = name if sink == "postgres" else f"{name}_sql"
                return self.of_table(table, columns)
            case "sqlite":
                with closing(sqlite3.connect(f"{target}.db")) as database:
                    database.row_factory = sqlite3.Row
                    rows = [dict(row) for row in database.execute("SELECT * FROM t")]
                found = [self._kept(row, columns) for row in rows]
            case "webhook":
                found = [self._kept(row, columns, binary=True) for row in self.receiver.rows()]
            case _:
                found = [
                    {each: arrow_text(batch.column(each)[n]) for each in batch.schema.names}
                    for batch in _stored(sink, target)
                    for n in range(batch.num_rows)
                ]
        return {(int(str(row["id"])), each): row[each] for row in found for each in columns}

    def _kept(self, row: Mapping[str, Any], columns: Columns, *, binary: bool = False) -> dict[str, str | None]:
        import base64

        def value(each: str) -> Any:
            if binary and columns[each].spark == "binary" and row[each] is not None:
                return base64.b64decode(row[each])
            return row[each]

        return {"id": str(row["id"])} | {each: kept_text(value(each), columns[each].spark) for each in columns}

    def of_table(self, table: str, columns: Columns) -> Cells:
        """What is in a table of the database."""
        names = ", ".join(f"'{one}'" for one in columns)
        values = ", ".join(_shown(one, of.spark) for one, of in columns.items())
        row = f"json_object(ARRAY[{names}], ARRAY[{values}])"
        self.database.sql("ALTER ROLE rota SET timezone = 'UTC'")
        lines = self.database.sql(f"SELECT id || E'\\t' || {row}::text FROM {table}").split("\n")
        found = ((int(number), json.loads(text)) for number, _, text in (line.partition("\t") for line in lines))
        return {
            (number, name): _same_form(value, columns[name].spark)
            for number, row in found
            for name, value in row.items()
        }


def _shown(column: str, spark: str) -> str:
    """The text of a column in a PostgreSQL table, whatever type it has there. The blanks of `char(n)` stay."""
    if spark.startswith("decimal"):
        return f"trim_scale({column}::numeric)::text"
    padded = f"pg_typeof({column}) = 'bpchar'::regtype AND {column} IS NOT NULL"
    return f"CASE WHEN {padded} THEN format('%s', {column}) ELSE {column}::text END"


def _same_form(text: str | None, spark: str) -> str | None:
    """What PostgreSQL writes of a value; of a number with a floating point, what Python does."""
    return text if text is None or spark not in ("float", "double") else number_text(float(text), spark == "float")


def _stored(sink: str, target: Path) -> "list[pa.RecordBatch]":
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyarrow import parquet

    if sink == "delta":
        files = [target / path for path in DeltaTable(target).file_uris()]
    else:
        files = sorted(target.glob("*.parquet"))
    batches: list[pa.RecordBatch] = []
    for file in files:
        batches += parquet.read_table(file).to_batches()
    return batches


class PostgresEdges:
    """The edges of PostgreSQL in a table."""

    def __init__(self, database: EtlDatabase) -> None:
        self.database = database
        database.sql(of_postgres.SETUP)

    def put(self, name: str, columns: Columns, rows: Rows) -> dict[str, Any]:
        """The `source` of an `etl` that reads these rows."""
        declared = ", ".join(
            f"{each} {of.type.partition(', ')[0] if 'said' in of.type else of.type}" for each, of in columns.items()
        )
        statements = [f"CREATE TABLE src_{name} (id int PRIMARY KEY, {declared})"]
        for number, row in enumerate(rows):
            names = ", ".join(["id", *row])
            values = ", ".join([str(number), *(edge.given for edge in row.values())])
            statements.append(f"INSERT INTO src_{name} ({names}) VALUES ({values})")
        self.database.sql(";\n".join(statements))
        return self.database.end(table=f"src_{name}", **params_of(columns))


class SqliteEdges:
    """The edges of SQLite in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, name: str, columns: Columns, rows: Rows) -> dict[str, Any]:
        """The `source` of an `etl` that reads these rows."""
        path = self.folder / f"{name}.src.db"
        declared = ", ".join(f"{each} {of.type}" for each, of in columns.items())
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(f"CREATE TABLE src (id INTEGER PRIMARY KEY, {declared})")
            for number, row in enumerate(rows):
                names = ", ".join(["id", *row])
                values = ", ".join([str(number), *(edge.given for edge in row.values())])
                database.execute(f"INSERT INTO src ({names}) VALUES ({values})")
        return {"type": "sqlite", "path": str(path), "table": "src", "shared": True}


class HttpEdges:
    """The edges of an HTTP API in a page."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack

    def put(self, name: str, columns: Columns, rows: Rows) -> dict[str, Any]:
        """The `source` of an `etl` that reads these rows."""
        records = [
            {"id": str(number)} | {each: edge.given for each, edge in row.items()} for number, row in enumerate(rows)
        ]
        shown = ("{" + ", ".join(f'"{each}": {text}' for each, text in record.items()) + "}" for record in records)
        page = f"[{', '.join(shown)}]".encode()
        url = self.stack.enter_context(
            api_server(lambda _: Response(200, iter([page]), {"Content-Type": "application/json"}), of_node=False)
        )
        return {"type": "http", "url": url, "columns": {"id": "int"} | {each: of.type for each, of in columns.items()}}


class DeltaEdges:
    """The edges of a Delta table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, name: str, columns: Columns, rows: Rows) -> dict[str, Any]:
        """The `source` of an `etl` that reads these rows."""
        import pyarrow as pa
        from deltalake import write_deltalake

        arrays = {"id": pa.array(range(len(rows)), pa.int32())}
        for each, of in columns.items():
            given = [row[each].given if each in row else "NULL" for row in rows]
            arrays[each] = _arrow(of.type, [None if text == "NULL" else text for text in given])
        path = str(self.folder / f"{name}.src")
        # Its writer notes no statistics of days beyond its own calendar.
        write_deltalake(path, pa.table(arrays), configuration={"delta.dataSkippingNumIndexedCols": "0"})
        return {"type": "delta", "table": path, "shared": True}


class FileEdges:
    """The edges of text files, or of Parquet files, in one file."""

    def __init__(self, folder: Path, form: str) -> None:
        self.folder = folder
        self.form = form

    def put(self, name: str, columns: Columns, rows: Rows) -> dict[str, Any]:
        """The `source` of an `etl` that reads these rows."""
        path = self.folder / f"{name}.{self.form}"
        made = {"type": "files", "files": str(path), "format": self.form, "shared": True}
        if self.form == "parquet":
            self._put_parquet(path, columns, rows)
            return made
        if self.form == "csv":
            fields = (
                [str(n), *(row[each].given if each in row else "" for each in columns)] for n, row in enumerate(rows)
            )
            lines = [",".join(line) for line in [["id", *columns], *fields]]
        else:
            records = ({"id": str(n)} | {each: edge.given for each, edge in row.items()} for n, row in enumerate(rows))
            lines = ["{" + ",".join(f'"{each}":{text}' for each, text in one.items()) + "}" for one in records]
        path.write_text("\n".join([*lines, ""]))
        declared = (f"{each} {of.type.removesuffix(', as text')}" for each, of in columns.items())
        return made | {"columns": ", ".join(["id INT", *declared])}

    @staticmethod
    def _put_parquet(path: Path, columns: Columns, rows: Rows) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        kinds = {
            "uint8": pa.uint8(),
            "uint16": pa.uint16(),
            "uint32": pa.uint32(),
            "uint64": pa.uint64(),
            "float": pa.float32(),
            "date32": pa.date32(),
            "timestamp[us]": pa.timestamp("us"),
            "timestamp[ns]": pa.timestamp("ns"),
            "list<timestamp[ns]>": pa.list_(pa.timestamp("ns")),
            "time64[us]": pa.time64("us"),
            "duration[ns]": pa.duration("ns"),
            "decimal256(50, 3)": pa.decimal256(50, 3),
            "halffloat": pa.float16(),
        }
        arrays = {"id": pa.array(range(len(rows)), pa.int32())}
        for each, of in columns.items():
            given = [json.loads(row[each].given) if each in row else None for row in rows]
            arrays[each] = pa.array(given, kinds[of.type])
        parquet.write_table(pa.table(arrays), path)


def _arrow(type_: str, given: list[str | None]) -> "pa.Array":
    import pyarrow as pa

    plain = {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
    }
    micros = {"timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us")}
    nested = {
        "array<bigint>": pa.list_(pa.int64()),
        "map<string,bigint>": pa.map_(pa.string(), pa.int64()),
        "struct<n:bigint,t:timestamp>": pa.struct([("n", pa.int64()), ("t", micros["timestamp"])]),
    }
    if type_ in nested:
        return pa.array([None if text is None else json.loads(text) for text in given], nested[type_])
    texts = pa.array(given, pa.string())
    if type_ == "date":
        return texts.cast(pa.int32()).cast(pa.date32())
    if type_ in micros:
        return texts.cast(pa.int64()).cast(micros[type_])
    if type_.startswith("decimal"):
        precision, scale = type_.removeprefix("decimal(").rstrip(")").split(",")
        return texts.cast(pa.decimal128(int(precision), int(scale)))
    return texts.cast(plain[type_])


def params_of(columns: Columns) -> dict[str, dict[str, object]]:
    """The params that the types of these columns need."""
    found: dict[str, dict[str, object]] = {}
    for column, of in columns.items():
        for param, value in of.params.items():
            found.setdefault(param, {}).update({name.format(column=column): one for name, one in value.items()})
    return found


Put = Callable[[str, Columns, Rows], dict[str, Any]]


def putting(source: str, sinks: Sinks) -> Put:
    """What puts rows where an `etl` reads that source, and returns its params."""
    match source:
        case "postgres":
            return PostgresEdges(sinks.database).put
        case "sqlite":
            return SqliteEdges(sinks.folder).put
        case "http":
            return HttpEdges(sinks.stack).put
        case "delta":
            return DeltaEdges(sinks.folder).put
        case "csv_files" | "json_files" | "parquet_files":
            return FileEdges(sinks.folder, source.partition("_")[0]).put
    raise ValueError(f"nobody puts edges of {source}: add it here")


class Pushing:
    """Runs attempts that take values of a source to sinks."""

    def __init__(self, spark: "SparkSession", sinks: Sinks, source: str) -> None:
        self.spark = spark
        self.sinks = sinks
        self.put = putting(source, sinks)
        self.runs = 0

    def run(self, sink: str, name: str, columns: Columns, rows: Rows) -> None:
        """Take these rows to a target of that name in the sink."""
        self.runs += 1
        params: dict[str, Any] = self.sinks.params(sink, name) | {"source": self.put(name, columns, rows)}
        context = FakeContext(
            EtlParams.model_validate(params),
            self.sinks.folder / f"scratch-{self.runs}",
            task=f"t{self.runs}",
            run_id=f"t~{self.runs}",
            token=1,
            secrets=self.sinks.secrets,
        )
        run_attempt(self.spark, context)
