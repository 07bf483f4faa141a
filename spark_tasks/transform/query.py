"""Whether the SQL of a transform is a query, as far as that is seen without Spark (`spark_tasks.sql` does the rest)."""

import re
from typing import Final

from spark_tasks.sql.lexing import check_balanced

_BEGINS: Final = re.compile(
    r"(?:[\s(]|--[^\n]*(?:\n|$)|/\*(?:(?!/\*|\*/).)*\*/)*+(?:(?:select|with|from|values|table)\b|/\*)",
    re.IGNORECASE | re.DOTALL,
)
"""The beginning of a query, after comments. After a comment inside a comment, what begins is left to Spark's parser."""


def check_query_text(sql: str) -> str:
    r"""The text, as far as that can be seen, of a query. Raises `ValueError`.

    >>> check_query_text("-- by day\nWITH a AS (SELECT 1) SELECT * FROM a")[:10]
    '-- by day\n'
    >>> check_query_text("SELEC * FROM source")
    Traceback (most recent call last):
    ValueError: it must be a query, which begins with SELECT, WITH, FROM, VALUES or TABLE
    """
    if _BEGINS.match(sql) is None:
        raise ValueError("it must be a query, which begins with SELECT, WITH, FROM, VALUES or TABLE")
    return check_balanced(sql)
