"""Reads a whole parsed tree out of Spark's JVM, in one call."""

import re
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_readers: "Final[WeakKeyDictionary[Any, Any]]" = WeakKeyDictionary()
"""The methods of the `Reader` that was compiled in each JVM, by the JVM's gateway."""

_ESCAPE: Final = re.compile(r"\\(n|t|\\|u[0-9a-f]{4})")
_ESCAPED: Final = {"n": "\n", "t": "\t", "\\": "\\"}


@dataclass(slots=True)
class ParsedPart:
    """An object of a parsed tree, with the objects that it contains."""

    name: str
    """Its name in the object that contains it. The name begins with + if it is no element of a case class."""
    sort: str
    """One of node, product, sequence, value and trouble. A trouble is an object that could not be read."""
    of: str
    """Its full class name."""
    text: str = ""
    """A value's text."""
    #: The objects that it contains, in order.
    parts: "list[ParsedPart]" = field(default_factory=list)

    @property
    def simple(self) -> str:
        """The class's own name.

        >>> ParsedPart("", "node", "org.apache.spark.sql.catalyst.expressions.Add").simple
        'Add'
        """
        return self.of.rpartition(".")[2].removesuffix("$")

    def element(self, name: str) -> "ParsedPart | None":
        """Return the element of that name; None if the class has no such element, as in another version of Spark."""
        return next((part for part in self.parts if part.name == name), None)

    def values(self) -> list[str]:
        """Return the texts of the values among its parts."""
        return [part.text for part in self.parts if part.sort == "value"]

    def walk(self) -> "Iterator[ParsedPart]":
        """Yield this part and all parts below it."""
        waiting = [self]
        while waiting:
            part = waiting.pop()
            yield part
            waiting += reversed(part.parts)


def parts_of(text: str) -> ParsedPart:
    r"""Parse the tree that `Reader.java` has written. Pure.

    >>> parts_of("-1\t\tnode\ta.B\t\n0\tx\tvalue\tjava.lang.String\tone\\ntwo\n").parts[0].text
    'one\ntwo'
    """
    found: list[ParsedPart] = []
    for line in text.split("\n")[:-1]:
        parent, name, sort, of, value = line.split("\t")
        part = ParsedPart(name, sort, of, _ESCAPE.sub(_unescaped, value) if "\\" in value else value)
        if (above := int(parent)) >= 0:
            found[above].parts.append(part)
        found.append(part)
    return found[0]


def _unescaped(found: "re.Match[str]") -> str:
    code = found[1]
    return _ESCAPED.get(code) or chr(int(code[1:], 16))


def read_parts(spark: "SparkSession", tree: Any) -> ParsedPart:
    """Return the parts of `tree`, an object of the session's JVM. Spark does not analyse it."""
    return parts_of(_called(spark, "read", tree))


def classes(spark: "SparkSession", analysed: Any) -> frozenset[str]:
    """Return the classes of all expressions in an analysed plan."""
    return frozenset(_called(spark, "classes", analysed).split())


def _called(spark: "SparkSession", method: str, argument: Any) -> str:
    gateway: Any = spark.sparkContext._gateway
    methods = _readers.get(gateway)
    if methods is None:
        methods = _readers[gateway] = _compiled(spark)
    arguments = gateway.new_array(gateway.jvm.java.lang.Object, 1)
    arguments[0] = argument
    return str(methods[method].invoke(None, arguments))


def _compiled(spark: "SparkSession") -> dict[str, Any]:
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(files("spark_tasks.sql").joinpath("Reader.java").read_text(encoding="utf-8"))
    reader = compiler.getClassLoader().loadClass("rota.sql.Reader")
    return {str(method.getName()): method for method in reader.getMethods()}
