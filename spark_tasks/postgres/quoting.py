"""Names and values as text in SQL."""


def name(text: str) -> str:
    """A quoted name.

    >>> name('a"b')
    '"a""b"'
    """
    return '"' + text.replace('"', '""') + '"'


def qualified(text: str) -> str:
    """A quoted table name from `TABLE` or `SCHEMA.TABLE`.

    >>> qualified("public.flights")
    '"public"."flights"'
    """
    return ".".join(map(name, text.split(".", 1)))


def literal(text: str) -> str:
    """A quoted value.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
