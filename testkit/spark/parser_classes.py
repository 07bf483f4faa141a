"""Which classes the parser of the installed Spark can make, read from its class files without a JVM."""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from zipfile import ZipFile

import pyspark

_PARSERS = (
    "catalyst/parser/AstBuilder",
    "catalyst/parser/DataTypeAstBuilder",
    "catalyst/parser/AbstractSqlParser",
    "catalyst/parser/ParserUtils",
    "execution/SparkSqlAstBuilder",
    "execution/SparkSqlParser",
)
_TREE = "org/apache/spark/sql/catalyst/trees/TreeNode"
_ABSTRACT = 0x0400
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""The sizes of constants in a class file, by their tags; classes (7) and texts (1) are read."""


@dataclass(frozen=True)
class ClassFile:
    """A class as its file says it."""

    name: str
    above: tuple[str, ...]
    """Its superclass and interfaces."""
    abstract: bool
    named: frozenset[str]
    """All classes that it names."""
    texts: frozenset[str]
    """All its constants that are text: names of methods and fields, and strings."""


def class_file(content: bytes) -> ClassFile:
    """Read a class file (JVM specification, chapter 4). Pure."""
    count, at, number = struct.unpack_from(">H", content, 8)[0], 10, 1
    texts: dict[int, str] = {}
    classes: dict[int, int] = {}
    while number < count:
        tag = content[at]
        at += 1
        if tag == 1:
            size = struct.unpack_from(">H", content, at)[0]
            texts[number] = content[at + 2 : at + 2 + size].decode("utf-8", "replace")
            at += 2 + size
        elif tag == 7:
            classes[number] = struct.unpack_from(">H", content, at)[0]
            at += 2
        else:
            at += _SIZES[tag]
        number += 2 if tag in (5, 6) else 1
    access, mine, above, interfaces = struct.unpack_from(">HHHH", content, at)
    named = {number: texts[text] for number, text in classes.items()}
    over = [above, *struct.unpack_from(f">{interfaces}H", content, at + 8)]
    return ClassFile(
        named[mine],
        tuple(named[one] for one in over if one),
        bool(access & _ABSTRACT),
        frozenset(named.values()),
        frozenset(texts.values()),
    )


@cache
def _all() -> Mapping[str, ClassFile]:
    return {one.name: one for one in _read()}


def _read() -> Iterator[ClassFile]:
    for jar in sorted((Path(pyspark.__file__).parent / "jars").glob("spark-*.jar")):
        if jar.name.startswith(("spark-catalyst_", "spark-sql_", "spark-sql-api_")):
            with ZipFile(jar) as opened:
                for name in opened.namelist():
                    if name.startswith("org/apache/spark/sql/") and name.endswith(".class"):
                        yield class_file(opened.read(name))


def _is_node(name: str) -> bool:
    waiting, seen = [name], set[str]()
    while waiting:
        one = waiting.pop()
        if one == _TREE:
            return True
        if one not in seen and one in _all():
            waiting += _all()[one].above
        seen.add(one)
    return False


def nodes() -> frozenset[str]:
    """The classes of nodes that the parser's own classes name and that an object may have, as Java names them."""
    named: set[str] = set()
    for name, one in _all().items():
        if name.startswith(tuple(f"org/apache/spark/sql/{parser}" for parser in _PARSERS)):
            named |= one.named
    found = {name for name in named if _is_node(name) and name in _all() and not _all()[name].abstract}
    return frozenset(name.replace("/", ".") for name in found)


def naming(text: str) -> frozenset[str]:
    """The classes of expressions that call a method of that name, or have one."""
    room = "org/apache/spark/sql/catalyst/expressions/"
    return frozenset(
        name.replace("/", ".") for name, one in _all().items() if name.startswith(room) and text in one.texts
    )


def above(name: str) -> frozenset[str]:
    """The classes and interfaces that a class extends, as Java names them."""
    found, waiting = set[str](), [name.replace(".", "/")]
    while waiting:
        one = waiting.pop()
        if one not in found and one in _all():
            found.add(one)
            waiting += _all()[one].above
    return frozenset(one.replace("/", ".") for one in found)
