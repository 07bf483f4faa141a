"""What is allowed of a parsed text, from trees that are built here. Without a JVM."""

import pytest

from spark_tasks.sql import functions, nodes
from spark_tasks.sql.judging import SqlRefused, check_analysed, check_condition, check_query
from spark_tasks.sql.reading import ParsedPart, parts_of

_CATALYST = "org.apache.spark.sql.catalyst"


def _value(name: str, text: str) -> ParsedPart:
    return ParsedPart(name, "value", "java.lang.String", text)


def _names(name: str, *texts: str) -> ParsedPart:
    return ParsedPart(name, "sequence", "scala.collection.immutable.Nil$", "", [_value("", text) for text in texts])


def _relation(*names: str, options: int = 0) -> ParsedPart:
    given = ParsedPart("options", "sequence", f"{_CATALYST[:-9]}.util.CaseInsensitiveStringMap")
    given.parts = [_value("key", "path")] * options
    inner = [_names("multipartIdentifier", *names), given, _value("isStreaming", "false")]
    return ParsedPart("", "node", f"{_CATALYST}.analysis.UnresolvedRelation", "", inner)


def _call(*names: str, internal: str = "false", arguments: tuple[ParsedPart, ...] = ()) -> ParsedPart:
    given = ParsedPart("arguments", "sequence", "scala.collection.immutable.Nil$", "", list(arguments))
    inner = [_names("nameParts", *names), given, _value("isInternal", internal)]
    return ParsedPart("", "node", f"{_CATALYST}.analysis.UnresolvedFunction", "", inner)


def _literal(text: str) -> ParsedPart:
    return ParsedPart("", "node", f"{_CATALYST}.expressions.Literal", "", [_value("value", text)])


def test_a_view_is_read_and_nothing_else() -> None:
    check_query(_relation("SOURCE"), ["source"])
    for names in (("other",), ("default", "source"), ("text", "/etc/passwd"), ()):
        with pytest.raises(SqlRefused, match=r"cannot be found\. There are source\.$"):
            check_query(_relation(*names), ["source"])
    with pytest.raises(SqlRefused, match="WITH options of source"):
        check_query(_relation("source", options=1), ["source"])


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (f"{_CATALYST}.plans.logical.ScriptTransformation", "ScriptTransformation is not allowed: .* runs a program"),
        (f"{_CATALYST}.plans.logical.NewInThisSpark", "NewInThisSpark is not allowed: it is not known"),
        ("org.elsewhere.plans.logical.Project", "Project is not allowed: it is not known"),
        (f"{_CATALYST}.expressions.Reflect", "Reflect is not allowed"),
    ],
)
def test_a_node_that_is_in_no_list_is_refused_wherever_it_is(of: str, why: str) -> None:
    inside = ParsedPart("x", "product", "scala.Some", "", [ParsedPart("value", "node", of)])
    for part in (
        ParsedPart("", "node", of),
        ParsedPart("", "sequence", "scala.collection.immutable.Nil$", "", [inside]),
    ):
        for check in (check_condition, lambda root: check_query(root, ["source"])):
            with pytest.raises(SqlRefused, match=why):
                check(part)


@pytest.mark.parametrize(
    ("sort", "of"),
    [
        ("value", "scala.Function1"),
        ("value", f"{_CATALYST}.parser.AstBuilder$$Lambda$1944/0x00007f85cdcb2c50"),
        ("product", "org.apache.spark.sql.catalyst.catalog.CatalogTable"),
        ("sequence", "org.elsewhere.Sequence"),
        ("trouble", "java.lang.IllegalStateException"),
    ],
)
def test_what_a_node_holds_is_of_a_known_class(sort: str, of: str) -> None:
    with pytest.raises(SqlRefused):
        check_condition(ParsedPart("x", sort, of, "text"))


def test_a_function_is_named_by_one_known_name() -> None:
    check_condition(_call("ABS"))
    for names in (("reflect",), ("system", "builtin", "abs"), ("no_such_function",), ()):
        with pytest.raises(SqlRefused, match="function"):
            check_condition(_call(*names))
    with pytest.raises(SqlRefused, match="isInternal"):
        check_condition(_call("abs", internal="true"))


def test_a_type_is_written_out_as_in_sql() -> None:
    given = _literal("{}")
    for text in ("a INT", " `a b` INT", "array<int>", "STRUCT<a: INT>"):
        check_condition(_call("from_json", arguments=(given, _literal(text))))
    check_condition(_call("from_json", arguments=(given, _call("schema_of_json"))))
    for other in (_literal('{"type":"udt"}'), _literal(" \t{}"), _literal('"long"'), _literal(""), _call("concat")):
        with pytest.raises(SqlRefused, match="argument 2 of from_json must be a type as in SQL"):
            check_condition(_call("from_json", arguments=(given, other)))
    star = ParsedPart("", "node", f"{_CATALYST}.analysis.UnresolvedStar")
    with pytest.raises(SqlRefused, match="one by one"):
        check_condition(_call("from_json", arguments=(star,)))


def test_a_condition_has_neither_rows_nor_subqueries() -> None:
    for of in (*nodes.SUBQUERIES, *nodes.PLANS):
        with pytest.raises(SqlRefused, match="a subquery is not allowed here"):
            check_condition(ParsedPart("", "node", of))


def test_an_element_that_a_version_of_spark_lacks_is_no_permission() -> None:
    bare = ParsedPart("", "node", f"{_CATALYST}.analysis.UnresolvedFunction", "", [_names("nameParts", "abs")])
    with pytest.raises(SqlRefused, match="has no isInternal"):
        check_condition(bare)


def test_what_spark_makes_of_a_name_is_looked_at() -> None:
    check_analysed({f"{_CATALYST}.expressions.Add"})
    with pytest.raises(SqlRefused, match="no column of that name"):
        check_analysed({f"{_CATALYST}.expressions.CurrentUser"})


def test_texts_come_out_of_the_jvm_as_they_are() -> None:
    line = "-1\t\tvalue\tjava.lang.String\ta\\tb\\nc\\\\n\\u2028\\ud83d\n"
    assert parts_of(line).text == "a\tb\nc\\n\u2028\ud83d"


def test_the_lists_do_not_overlap() -> None:
    assert not functions.ALLOWED & functions.REFUSED.keys()
    assert not functions.ALLOWED_TABLES & functions.REFUSED_TABLES.keys()
    assert not {name.rpartition(".")[2] for name in nodes.PLANS | nodes.EXPRESSIONS} & nodes.REFUSED.keys()
