"""One name, one thing: what the house promises about names, and lint-imports cannot hold."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("hashing", "node", "spark_tasks", "tasks")


def test_no_public_class_name_stands_for_two_things() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            for each in ast.parse(file.read_text()).body:
                if isinstance(each, ast.ClassDef) and not each.name.startswith("_"):
                    places[each.name].append(f"{file.relative_to(ROOT)}:{each.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_at_most_three_modules_stand_at_the_root_of_node() -> None:
    assert len(list((ROOT / "node").glob("*.py"))) <= 3
