"""Texts are made, parsed and checked; what is accepted is looked at a second time."""

from collections import Counter
from dataclasses import dataclass, field
from importlib.resources import files
from random import Random
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.sql import functions, nodes
from spark_tasks.sql.judging import SqlRefused, check_condition, check_query
from spark_tasks.sql.reading import read_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWS: Final = ("source", "planes")
NAMES: Final = " ".join(
    [*VIEWS * 8, *"id s a b w x user text system builtin reflect broadcast explode range stack".split()]
)
FUNCTIONS: Final = " ".join(
    [*sorted(name for name in functions.ALLOWED if name.isidentifier()), *functions.REFUSED, "no_such_function"]
)
STRINGS: Final = "\n".join(["a", "1", "2020-01-01", "a INT", '{"type":"udt"}', "/etc/passwd", "3 days", "cat"])
RULES: Final = ("query", "query", "query", "statement", "singleStatement", "namedExpression", "expression")
DERIVED: Final = frozenset(
    f"org.apache.spark.sql.catalyst.plans.physical.{name}Partitioning" for name in ("Hash", "Range")
)
"""Nodes that an allowed node makes of its own elements, and keeps in a field beside them."""
PLANS: Final = frozenset({"query", "statement", "singleStatement"})


DFA_STATES: Final = 15_000
"""How many states the parser keeps, of 10 kB each, in a driver's usual heap."""


class Escaped(Exception):
    """The checker has accepted a text in which the second look finds what is in none of the lists."""


@dataclass
class Figures:
    """What became of the texts."""

    made: int = 0
    parsed: int = 0
    accepted: int = 0
    reasons: "Counter[str]" = field(default_factory=Counter)
    kinds: set[str] = field(default_factory=set)
    """The classes of nodes in accepted texts."""


class Soak:
    """Texts by their numbers: the same number makes the same text."""

    def __init__(self, spark: "SparkSession", dfa_states: int = DFA_STATES) -> None:
        self.spark = spark
        self.gateway: Any = spark.sparkContext._gateway
        self.parser: Any = spark._jsparkSession.sessionState().sqlParser()
        texts, naive = _compiled(self.gateway, "Texts"), _compiled(self.gateway, "Naive")
        self.text, self.parsed, self.found = texts["text"], texts["parsed"], naive["found"]
        self.figures = Figures()
        # The parser remembers each way through its grammar that it has met; random texts meet all, and fill the heap.
        spark.conf.set("spark.sql.parser.manageParserCaches", "true")
        spark.conf.set("spark.sql.parser.parserDfaCacheFlushThreshold", str(dfa_states))

    def run(self, first: int, count: int) -> Figures:
        """Make and check `count` texts. Raises `Escaped`."""
        for number in range(first, first + count):
            self._one(number)
        return self.figures

    def _one(self, number: int) -> None:
        chance = Random(number)
        rule = chance.choice(RULES)
        sql = str(self._called(self.text, number, rule, chance.randint(3, 25), NAMES, FUNCTIONS, STRINGS))
        self.figures.made += 1
        tree = self._called(self.parsed, self.parser, sql, rule in PLANS)
        if tree is None:
            return
        self.figures.parsed += 1
        try:
            if rule in PLANS:
                check_query(read_parts(self.spark, tree), VIEWS)
            else:
                check_condition(read_parts(self.spark, tree))
        except SqlRefused as error:
            self.figures.reasons[str(error).split(":")[0].split(" is not allowed")[0][:60]] += 1
            return
        self.figures.accepted += 1
        self._look_again(number, sql, str(self._called(self.found, tree)).split("\n")[:-1])

    def _look_again(self, number: int, sql: str, lines: list[str]) -> None:
        """Raise `Escaped` for a node, function or relation that is in none of the lists."""
        found = [line.split(" ", 1) for line in lines]
        relations = {*VIEWS, *(name.lower() for what, name in found if what == "named")}
        for what, name in found:
            known = {
                "node": name in nodes.PLANS or name in nodes.EXPRESSIONS or name in DERIVED,
                "function": name.strip("`").lower() in functions.ALLOWED,
                "table": name.lower() in functions.ALLOWED_TABLES,
                "relation": name.lower() in relations,
                "named": True,
            }
            if what == "node":
                self.figures.kinds.add(name)
            if not known[what]:
                raise Escaped(f"text {number} was accepted and has the {what} {name}: {sql}")

    def _called(self, method: Any, *arguments: Any) -> Any:
        inner = self.gateway.new_array(self.gateway.jvm.java.lang.Object, len(arguments))
        for number, argument in enumerate(arguments):
            inner[number] = argument
        outer = self.gateway.new_array(self.gateway.jvm.java.lang.Object, 1)
        outer[0] = inner
        return method.invoke(None, outer)


def _compiled(gateway: Any, name: str) -> dict[str, Any]:
    """The methods of a class of this folder, compiled in the JVM as the checker's own is."""
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(files(__package__).joinpath(f"{name}.java").read_text(encoding="utf-8"))
    found = compiler.getClassLoader().loadClass(f"rota.sql.{name}")
    return {str(one.getName()): one for one in found.getMethods()}
