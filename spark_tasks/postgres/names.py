"""Names of tables and columns in params."""

from typing import Annotated

from pydantic import AfterValidator, Field


def table_name(text: str) -> str:
    """Raise `ValueError` unless `text` is TABLE or SCHEMA.TABLE."""
    parts = text.split(".")
    if len(parts) > 2 or not all(parts):
        raise ValueError("a table is given as TABLE or SCHEMA.TABLE")
    return text


TableName = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(table_name)]
ColumnName = Annotated[str, Field(min_length=1, max_length=63)]
