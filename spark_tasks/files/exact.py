"""Converts text to columns of declared types in Spark. A text that is not exactly a value makes its row malformed.

Spark's own conversions fill in defaults and round: `10:00` becomes today at ten, `2020-02` becomes the first of that
month, 1.005 becomes 1.01 in a DECIMAL(3, 2), 1e999 becomes infinity, and `1d` becomes 1. So columns of dates, times,
decimals and floats are read as text, and Spark converts only texts that a check has found to be exactly a value. Most
texts pass after a few comparisons. Only the others are matched with a pattern, since a match costs as much as all other
work on a field. Integers and booleans need no check: Spark reads them exactly.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from spark_tasks.files.form import Form
from spark_tasks.sql.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

UNFIT: Final = "rota: a value is not of the type of its column"
"""The beginning of the error that is raised for a value that is not of its column's type."""

KEY: Final = "\0rota "
"""The beginning of a row's key, which is the texts of its checked columns as JSON. The key is used if Spark cannot give
the text of the row.
"""

_DATE: Final = r"[+-]?\d{4,6}-\d{1,2}-\d{1,2}"
_TIME: Final = r"\d{1,2}(?::\d{1,2}(?::\d{1,2}(?:\.\d{0,6}0*)?)?)?"
_ZONE: Final = r"\s*(?:Z|(?:UTC|GMT)?[+-]\d{1,2}(?::?\d{2}(?::?\d{2})?)?|UTC|GMT)"
"""A zone is an offset or UTC. Names of regions are refused, because an hour may occur twice there; so are
abbreviations, because many have several meanings.
"""

_NUMBER: Final = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_ZERO: Final = r"[+-]?[0.]+(?:[eE].*)?"
_WHOLE: Final = r"[+-]?\d+(?:\.0*)?"
_NOT_FINITE: Final = r"(?i:nan|[+-]?inf(?:inity)?)"

_NOT_DECIMAL: Final = "dDfFxX"
"""Letters that Java accepts in a number, although the text is no decimal number: `1d`, `1f`, `0x1p3`."""


def read_as(kind: "DataType", form: Form) -> "DataType":
    """Return the type with which Spark reads a column of the type `kind`: text if its values are checked."""
    from pyspark.sql import types as t

    match kind:
        case t.DateType() | t.TimestampNTZType() | t.DecimalType() | t.FloatType() | t.DoubleType():
            return t.StringType()
        case t.TimestampType():
            # With a pattern, Spark parses strictly, but in JSON it would still read a number as seconds.
            return kind if form.timestamp_format is not None and form.format != "json" else t.StringType()
        case t.StructType():
            return t.StructType([t.StructField(one.name, read_as(one.dataType, form)) for one in kind.fields])
        case t.ArrayType():
            return t.ArrayType(read_as(kind.elementType, form))
        case t.MapType():
            return t.MapType(kind.keyType, read_as(kind.valueType, form))
    return kind


def columns_as_text(columns: "StructType", form: Form) -> "StructType":
    """Return the columns with the types that `read_as` gives."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, read_as(field.dataType, form)) for field in columns.fields])


def checked_names(columns: "StructType", form: Form) -> list[str]:
    """Return the names of the columns whose values are checked."""
    return [each.name for each in columns.fields if read_as(each.dataType, form) != each.dataType]


def raising(rows: "DataFrame", columns: "StructType", form: Form) -> "DataFrame":
    """Convert rows that were read with `columns_as_text`. A value that is not of its type makes the Spark job fail."""
    from pyspark.sql import functions as f

    names = checked_names(columns, form)
    if not names:
        return rows
    converted, fits = _converted(rows, columns, names, form.timestamp_format)
    kinds = {each.name: each.dataType for each in columns.fields}
    unfit = f.raise_error(f.lit(UNFIT))

    def value(name: str) -> "Column":
        wrong = unfit.cast(kinds[name])
        return f.when(fits[name], _value_of(name)).when(f.col(quoted(name)).isNotNull(), wrong)

    return converted.select(*(_chosen(name, names, value) for name in columns.fieldNames()))


def marking(
    rows: "DataFrame", columns: "StructType", form: Form, mark: str, text: "Column | None" = None
) -> "DataFrame":
    """Convert as `raising` does, but mark a row with a misfit: its column `mark` is set to `text`, or to a key (`KEY`)
    if `text` is None.
    """
    from pyspark.sql import functions as f

    names = checked_names(columns, form)
    if not names:
        return rows
    converted, fits = _converted(rows, columns, names, form.timestamp_format)
    others = [f.col(quoted(name)) for name in converted.columns if not name.startswith(_VALUE)]
    kept = (f.when(fits[name], _value_of(name)).alias(_VALUE + name) for name in names)
    # A separate select, so that Spark does not check twice.
    converted = converted.select(*others, *kept)
    wrong = reduce(
        lambda one, other: one | other,
        [f.col(quoted(name)).isNotNull() & _value_of(name).isNull() for name in names],
    )
    if text is None:
        text = f.concat(f.lit(KEY), f.to_json(f.struct(*(f.col(quoted(name)) for name in names))))
    return converted.select(
        *(_chosen(name, names, _value_of) for name in columns.fieldNames()),
        f.coalesce(f.col(mark), f.when(wrong, text)).alias(mark),
    )


_VALUE: Final = "_rota_value_"


def _chosen(name: str, checked: Sequence[str], value: "Callable[[str], Column]") -> "Column":
    from pyspark.sql import functions as f

    return value(name).alias(name) if name in checked else f.col(quoted(name))


def _value_of(name: str) -> "Column":
    from pyspark.sql import functions as f

    return f.col(quoted(_VALUE + name))


def _converted(
    rows: "DataFrame", columns: "StructType", names: Sequence[str], pattern: str | None
) -> "tuple[DataFrame, dict[str, Column]]":
    """Add a column with the converted values for each checked column. Also return conditions, by column name, that a
    converted value is exact.

    The conversion is a separate select, so that Spark does not convert twice.
    """
    from pyspark.sql import functions as f

    kinds = {each.name: each.dataType for each in columns.fields if each.name in names}
    values = (_value(f.col(quoted(name)), kind, pattern).alias(_VALUE + name) for name, kind in kinds.items())
    fits = {name: _fits(f.col(quoted(name)), _value_of(name), kind, pattern) for name, kind in kinds.items()}
    return rows.select("*", *values), fits


def _value(text: "Column", kind: "DataType", pattern: str | None) -> "Column":
    """Convert a text, or the texts within arrays, maps and structs, as Spark does; `pattern` is the format of times."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    match kind:
        case t.ArrayType():
            return f.transform(text, lambda one: _value(one, kind.elementType, pattern))
        case t.MapType():
            return f.transform_values(text, lambda _, one: _value(one, kind.valueType, pattern))
        case t.StructType():
            fields = (_value(text.getField(one.name), one.dataType, pattern).alias(one.name) for one in kind.fields)
            return f.when(text.isNotNull(), f.struct(*fields))
        case t.TimestampType() if pattern is not None:
            return f.try_to_timestamp(text, f.lit(pattern))
    return text.try_cast(kind)


def _fits(text: "Column", value: "Column", kind: "DataType", pattern: str | None) -> "Column":
    """Return the condition that `value` is exactly the value in the text. It is null or false if not, or if there is no
    text.
    """
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    def fits_within(one: "Column", inner: "DataType") -> "Column":
        return one.isNull() | f.coalesce(_fits(one, _value(one, inner, pattern), inner, pattern), f.lit(False))

    match kind:
        case t.ArrayType():
            return f.forall(text, lambda one: fits_within(one, kind.elementType))
        case t.MapType():
            return f.forall(f.map_values(text), lambda one: fits_within(one, kind.valueType))
        case t.StructType():
            fit = (fits_within(text.getField(one.name), one.dataType) for one in kind.fields)
            return reduce(lambda one, other: one & other, fit, text.isNotNull())
        case t.DateType():
            quick = _has_at(text, 10, {5: "-", 8: "-"})
            return value.isNotNull() & (quick | _is(text, rf"{_DATE}(?:[T ]00:00(?::00(?:\.0*)?)?)?"))
        case t.TimestampType() if pattern is not None:
            return value.isNotNull()
        case t.TimestampType():
            # If these characters are at these positions, Spark accepts only a whole date with hh:mm:ss, or an hour and
            # a zone hh:mm:ss.
            usual = {5: "-", 14: ":", 17: ":"}
            quick = _has_at(text, 19, usual) | (_has_at(text, 20, usual) & f.endswith(text, f.lit("Z")))
            return value.isNotNull() & (quick | _is(text, rf"{_DATE}(?:[T ]{_TIME}(?:{_ZONE})?)?"))
        case t.TimestampNTZType():
            quick = _has_at(text, 19, {5: "-", 8: "-", 14: ":", 17: ":"})
            return value.isNotNull() & (quick | _is(text, rf"{_DATE}(?:[T ]{_TIME})?"))
        case t.DecimalType():
            return value.isNotNull() & _decimal_fits(text, kind.scale)
        case t.FloatType():
            return _float_fits(text, value, 2**24)
        case t.DoubleType():
            return _float_fits(text, value, 2**53)
    return f.lit(True)


def _is(text: "Column", pattern: str) -> "Column":
    r"""Whether the whole text matches the pattern, apart from blanks around it."""
    return text.rlike(rf"^\s*(?:{pattern})\s*$")


def _has_at(text: "Column", length: int, signs: "Mapping[int, str]") -> "Column":
    """Whether the text has `length` bytes, and the characters `signs` at their positions (from 1), as most dates and
    times have.
    """
    from pyspark.sql import functions as f

    there = [f.locate(sign, text, place) == place for place, sign in signs.items()]
    return reduce(lambda one, other: one & other, there, f.octet_length(text) == length)


def _decimal_fits(text: "Column", scale: int) -> "Column":
    """Whether a text has at most `scale` digits after the decimal point, without trailing zeros."""
    from pyspark.sql import functions as f

    behind, point = f.octet_length(text) - f.instr(text, "."), f.instr(text, ".")
    usual = ((point == 0) | (behind <= scale)) & ~f.contains(text, f.lit("e")) & ~f.contains(text, f.lit("E"))
    return usual | _is(text, decimal_pattern(scale))


def decimal_pattern(scale: int) -> str:
    r"""Return the pattern of texts that are a number with at most `scale` digits after the decimal point.

    >>> import re
    >>> [bool(re.fullmatch(decimal_pattern(2), text)) for text in ("1.2300", "1.234", "1.2e-1", "12e-1", "1.2e-2")]
    [True, False, True, True, False]
    """
    texts = [rf"\d*\.?\d{{0,{scale}}}0*"]
    for digits in range(scale + 1):
        fraction = rf"\.\d{{{digits}}}" if digits else r"\.?"
        powers = "|".join(map(str, range(scale - digits + 1)))
        texts.append(rf"\d*{fraction}[eE](?:\+?\d{{1,3}}|-0*(?:{powers}))")
    return rf"[+-]?(?:{'|'.join(texts)})"


def _float_fits(text: "Column", value: "Column", exact_below: int) -> "Column":
    """Whether `value` is the number of its type nearest to the text; a whole number has to be exactly equal."""
    from pyspark.sql import functions as f

    usual = (f.abs(value) < float(exact_below)) & (value != 0.0)
    for letter in _NOT_DECIMAL:
        usual &= ~f.contains(text, f.lit(letter))
    finite = f.abs(value) < float("inf")
    whole = text.try_cast("decimal(38,0)") == value.cast("double").try_cast("decimal(38,0)")
    unusual = (
        finite
        & _is(text, _NUMBER)
        & ((value != 0.0) | _is(text, _ZERO))
        & ((f.abs(value) < float(exact_below)) | ~_is(text, _WHOLE) | f.coalesce(whole, f.lit(False)))
    )
    return usual | unusual | (~finite & _is(text, _NOT_FINITE))
