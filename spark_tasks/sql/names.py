"""Names of columns in Spark's SQL."""


def quoted(name: str) -> str:
    """Quote a column's name for Spark's SQL, whatever characters it has.

    >>> quoted("a.b`c")
    '`a.b``c`'
    """
    return "`" + name.replace("`", "``") + "`"
