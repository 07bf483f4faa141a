"""Fields are documented where they are declared, and given by name where there are many."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from node.settings.row import value_of

ROOT = Path(__file__).parents[2]
PACKAGES = ("hashing", "node", "spark_tasks", "tasks")

FIELDS_MIN = 5
"""A public dataclass or NamedTuple with this many fields says of each what it is."""

POSITIONAL_MAX = 5
"""A call that makes such a value gives no more of its fields by position."""


class Module(NamedTuple):
    """A file of the product: its path, its lines and its tree."""

    path: Path
    lines: list[str]
    tree: ast.Module


def test_each_field_of_a_value_with_five_or_more_has_a_line_of_its_own() -> None:
    bare = [
        f"{module.path}:{field.lineno} {owner.name}.{ast.unparse(field.target)}"
        for module in _product()
        for owner in _values(module.tree)
        if len(fields := list(_fields(owner))) >= FIELDS_MIN
        for field in fields
        if not (_said_above(module, field) or _said_below(owner, field) or _is_a_setting(field))
    ]
    assert bare == []


def test_values_with_many_fields_are_made_by_keyword() -> None:
    names = {owner.name for module in _product() for owner in _values(module.tree)}
    by_position = [
        f"{module.path}:{call.lineno} {name}"
        for module in _product()
        for call in ast.walk(module.tree)
        if isinstance(call, ast.Call) and (name := _last_name(call.func)) in names and len(call.args) > POSITIONAL_MAX
    ]
    assert by_position == []


def test_both_forms_of_documentation_count_and_nothing_else() -> None:
    text = """\
@dataclass
class One:
    #: Said above,
    #: in two lines.
    a: int
    b: int
    \"\"\"Said below.\"\"\"
    # A comment is none.
    c: int
    #:
    d: int
    kept: ClassVar[int] = 0
    e: int = 0
"""
    module = Module(Path("one.py"), text.splitlines(), ast.parse(text))
    (owner,) = _values(module.tree)
    said = {
        ast.unparse(field.target): _said_above(module, field) or _said_below(owner, field) for field in _fields(owner)
    }
    assert said == {"a": True, "b": True, "c": False, "d": False, "e": False}


@cache
def _product() -> list[Module]:
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    texts = [(file.relative_to(ROOT), file.read_text()) for file in files]
    return [Module(path, text.splitlines(), ast.parse(text)) for path, text in texts]


def _values(tree: ast.Module) -> Iterator[ast.ClassDef]:
    """The public dataclasses and NamedTuples."""
    for each in ast.walk(tree):
        if isinstance(each, ast.ClassDef) and not each.name.startswith("_"):
            made_by = [one.func if isinstance(one, ast.Call) else one for one in each.decorator_list]
            if "dataclass" in map(_last_name, made_by) or "NamedTuple" in map(_last_name, each.bases):
                yield each


def _fields(owner: ast.ClassDef) -> Iterator[ast.AnnAssign]:
    for each in owner.body:
        if isinstance(each, ast.AnnAssign) and not ast.unparse(each.annotation).startswith("ClassVar"):
            yield each


def _said_above(module: Module, field: ast.AnnAssign) -> bool:
    above = module.lines[field.lineno - 2].strip()
    return above.startswith("#: ") and len(above) > len("#: ")


def _said_below(owner: ast.ClassDef, field: ast.AnnAssign) -> bool:
    after = owner.body[owner.body.index(field) + 1 :][:1]
    return [True for each in after if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)] == [True]


def _is_a_setting(field: ast.AnnAssign) -> bool:
    """Whether the field is declared with a row of the table of settings, which says what it sets."""
    return isinstance(field.value, ast.Call) and _last_name(field.value.func) == value_of.__name__


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
