"""One name, one thing: what the house promises about names, and lint-imports cannot hold."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("hashing", "node", "spark_tasks", "tasks")
CONVENTIONS = {
    # The entry point of a process.
    "main": "",
}
"""Names that several modules below a folder have by intent."""


def test_no_public_class_or_function_stands_for_two_things() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            path = str(file.relative_to(ROOT))
            for each in ast.parse(file.read_text()).body:
                if not isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if each.name.startswith("_") or path.startswith(CONVENTIONS.get(each.name, path + "/")):
                    continue
                places[each.name].append(f"{path}:{each.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_at_most_three_modules_stand_at_the_root_of_node() -> None:
    assert len(list((ROOT / "node").glob("*.py"))) <= 3
