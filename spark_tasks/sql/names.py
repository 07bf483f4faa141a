"""Names of columns in Spark's SQL."""


def quoted(name: str) -> str:
    """A column's name as Spark takes it, whatever characters it has.

    >>> quoted("a.b`c")
    '`a.b``c`'
    """
    return "`" + name.replace("`", "``") + "`"
