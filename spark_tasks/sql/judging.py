"""Checks that a parsed text has only known classes and functions. Pure: receives the parts of the tree, raises an
error.
"""

from collections.abc import Collection, Mapping
from typing import Final

from spark_tasks.sql import functions, nodes
from spark_tasks.sql.reading import ParsedPart

_ALLOWED_ARE: Final = "a query reads its views and calls functions of Spark that reach nothing but their arguments"
_TYPE_BEGINS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_`")
"""The characters that a type in SQL begins with. A type in JSON begins with a brace or a quote."""


class SqlRefused(Exception):
    """An SQL text has a part that is not known to be harmless. The message names the part, and the allowed
    alternatives.
    """


def check_query(root: ParsedPart, views: Collection[str]) -> None:
    """Raise `SqlRefused` unless the parsed query reads `views` only, and has known classes and functions only."""
    names = {view.lower() for view in views}
    for part in root.walk():
        if part.sort == "node" and part.simple == "UnresolvedWith":
            names |= _named_by_with(part)
    for part in root.walk():
        _check(part, names, sorted(views))


def check_condition(root: ParsedPart) -> None:
    """Raise `SqlRefused` unless the parsed expression is about one row, and has known classes and functions only."""
    for part in root.walk():
        if part.of in nodes.SUBQUERIES or part.of in nodes.PLANS:
            raise SqlRefused("a subquery is not allowed here: a condition is about the columns of one row")
        _check(part, frozenset(), ())


def check_analysed(classes: Collection[str]) -> None:
    """Raise `SqlRefused` if Spark has taken a column's name for a refused function. `classes` are the classes of
    expressions.

    >>> check_analysed({"org.apache.spark.sql.catalyst.expressions.CurrentUser"})
    Traceback (most recent call last):
    spark_tasks.sql.judging.SqlRefused: user, current_user or session_user, and no column of that name, is not allowed
    """
    for name in sorted(classes):
        if said := functions.CURRENT.get(name.rpartition(".")[2]):
            raise SqlRefused(f"{said}, is not allowed")


def _named_by_with(part: ParsedPart) -> set[str]:
    relations = part.element("cteRelations")
    return {name.lower() for one in (relations.parts if relations else ()) for name in one.values()}


def _check(part: ParsedPart, relations: Collection[str], views: Collection[str]) -> None:
    if part.sort == "trouble":
        raise SqlRefused(f"a part of it cannot be checked: {part.of} {part.text}".rstrip())
    if part.sort == "sequence":
        if not part.of.startswith(nodes.SEQUENCES):
            raise _unknown(part)
    elif part.sort != "node":
        if part.of not in nodes.PLAIN:
            raise _unknown(part)
    elif part.of in nodes.PLANS:
        _check_plan(part, relations, views)
    elif part.of in nodes.EXPRESSIONS:
        _check_expression(part)
    else:
        raise _unknown(part)


def _unknown(part: ParsedPart) -> SqlRefused:
    why = nodes.REFUSED.get(part.simple, "it is not known to be harmless")
    return SqlRefused(f"{part.simple} is not allowed: {why}; {_ALLOWED_ARE}")


def _check_plan(part: ParsedPart, relations: Collection[str], views: Collection[str]) -> None:
    kind = part.simple
    if kind == "UnresolvedRelation":
        _check_relation(part, relations, views)
    elif kind == "UnresolvedTableValuedFunction":
        name = _name(part, "name")
        _check_known(name, functions.ALLOWED_TABLES, functions.REFUSED_TABLES, "the table function")
        _check_is(part, "isStreaming", "false")
    elif kind == "UnresolvedHint":
        hint = _text(part, "name")
        if hint.lower() not in functions.HINTS:
            raise SqlRefused(f"the hint {hint} is not allowed; hints are {', '.join(sorted(functions.HINTS))}")


def _check_relation(part: ParsedPart, relations: Collection[str], views: Collection[str]) -> None:
    names = _texts(part, "multipartIdentifier")
    if len(names) != 1 or names[0].lower() not in relations:
        shown = ".".join(f"`{name}`" for name in names)
        there = f"There are {', '.join(views)}" if views else "There is none"
        raise SqlRefused(f"the table or view {shown} cannot be found. {there}.")
    options = part.element("options")
    if options is None or options.parts:
        raise SqlRefused(f"WITH options of {names[0]} are not allowed: a view is read as it is")
    _check_is(part, "isStreaming", "false")


def _check_expression(part: ParsedPart) -> None:
    kind = part.simple
    if kind == "UnresolvedFunction":
        name = _name(part, "nameParts")
        _check_known(name, functions.ALLOWED, functions.REFUSED, "the function")
        _check_is(part, "isInternal", "false")
        if name in functions.TYPE_TEXTS:
            _check_type_text(part, name, functions.TYPE_TEXTS[name])
    elif kind == "UnresolvedGenerator":
        identifier = part.element("name")
        if identifier is None or [one.of for one in identifier.parts[1:]] != ["scala.None$", "scala.None$"]:
            raise SqlRefused("a function is named by one name, without a database")
        _check_known(_text(identifier, "funcName").lower(), functions.ALLOWED, functions.REFUSED, "the function")


def _check_known(name: str, allowed: Collection[str], refused: Mapping[str, str], what: str) -> None:
    if name not in allowed:
        why = refused.get(name, "it is not one of Spark's that are known to reach nothing but their arguments")
        raise SqlRefused(f"{what} {name} is not allowed: {why}")


def _check_type_text(part: ParsedPart, name: str, number: int) -> None:
    """Raise `SqlRefused` unless the argument with that number, from 0, is a type in SQL."""
    arguments = part.element("arguments")
    given = arguments.parts if arguments else []
    for one in given:
        if one.simple in ("NamedArgumentExpression", "UnresolvedStar", "UnresolvedStarExceptOrReplace"):
            raise SqlRefused(f"the arguments of {name} are given one by one, without names and *")
    if len(given) <= number:
        return  # Spark reports the missing argument
    text = given[number]
    if text.simple == "UnresolvedFunction" and _name(text, "nameParts") in functions.TYPE_MAKERS:
        return
    literal = text.element("value") if text.simple == "Literal" else None
    if literal is None or literal.text.lstrip(" \n")[:1] not in _TYPE_BEGINS:
        raise SqlRefused(
            f"argument {number + 1} of {name} must be a type as in SQL, written out, such as 'n INT, text STRING'"
        )


def _check_is(part: ParsedPart, name: str, text: str) -> None:
    if _text(part, name) != text:
        raise SqlRefused(f"{part.simple} with {name} is not allowed; {_ALLOWED_ARE}")


def _name(part: ParsedPart, element: str) -> str:
    names = _texts(part, element)
    if len(names) != 1:
        raise SqlRefused(f"the function {'.'.join(names)} is not allowed: a function is named by one name")
    return names[0].lower()


def _texts(part: ParsedPart, element: str) -> list[str]:
    found = part.element(element)
    return found.values() if found else []


def _text(part: ParsedPart, element: str) -> str:
    """Return the text of the value named `element`. Raises `SqlRefused` if there is no such value, as in another
    version of Spark.
    """
    found = part.element(element)
    if found is None or found.sort != "value":
        raise SqlRefused(f"{part.simple} is not known as this version of Spark has it: it has no {element}")
    return found.text
