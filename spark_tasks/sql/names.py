"""Names of columns in Spark's SQL."""


def quoted(name: str) -> str:
    """A column's name, quoted for Spark's SQL, whatever characters it has.

    >>> quoted("a.b`c")
    '`a.b``c`'
    """
    return "`" + name.replace("`", "``") + "`"
