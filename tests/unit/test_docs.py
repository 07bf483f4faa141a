"""What the documents say is there, is there; examples in docstrings do what they say."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

from node.cli.main import rota

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "node/DESIGN.md"]
WITH_EXAMPLES = sorted(
    str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
    for folder in ("hashing", "tasks", "spark_tasks", "node")
    for path in (ROOT / folder).rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_in_docstrings_hold(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_that_are_named_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)\b(?!,)", _code(page))) - targets == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_are_named_exist(page: Path) -> None:
    assert set(re.findall(r"\brota ([a-z]+)\b", _code(page))) - set(rota.list_commands(None)) == set()  # type: ignore[arg-type]


def test_folders_that_architecture_names_exist() -> None:
    named = set(re.findall(r"`((?:hashing|tasks|spark_tasks|node)/[a-z_/]*)`", (ROOT / "ARCHITECTURE.md").read_text()))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_tests_that_the_design_names_exist() -> None:
    named = re.findall(r"`(test_[a-z0-9_]+)`", (ROOT / "node/DESIGN.md").read_text())
    written = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_[a-z0-9_]+)\(", path.read_text(), re.MULTILINE)
    }
    assert len(named) > 50
    assert [name for name in named if name not in written] == []


def _code(page: Path) -> str:
    """What stands in code, inline or in a block."""
    text = page.read_text()
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))
