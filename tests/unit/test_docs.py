"""What the documents say is there, is there; examples in docstrings do what they say."""

import ast
import doctest
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

from node.cli.main import rota
from node.settings.table import unknown_settings

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "docs/reference"
ROOMS = sorted(path.parent for package in ("node", "spark_tasks") for path in (ROOT / package).glob("*/__init__.py"))
DESIGNS = [
    *(room / "DESIGN.md" for room in ROOMS),
    *(
        ROOT / room / "DESIGN.md"
        for room in ("hashing", "tasks", "tasks/backup", "tasks/backup/tree", "tasks/definition")
    ),
]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "examples/rota-hello/README.md",
    *(page for page in DESIGNS if page.exists()),
]
WRITTEN = [page for page in PAGES if page.parent != GENERATED or page.name == "README.md"]
WITH_EXAMPLES = sorted(
    str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
    for folder in ("hashing", "tasks", "spark_tasks", "node", "testkit")
    for path in (ROOT / folder).rglob("*.py")
    if ">>> " in path.read_text()
)
FOLDERS = "hashing|tasks|spark_tasks|node|testkit|tests|bench|examples|docs"


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_in_docstrings_hold(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_to_a_page_and_a_heading(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (heading and heading not in _headings(target)):
            broken.append(link)
    assert broken == []


def test_every_page_is_reached_from_the_readme() -> None:
    seen, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)#\s]+\.md)", page.read_text())
        waiting += [(page.parent / link).resolve() for link in links if "://" not in link]
    assert [_name(page) for page in WRITTEN if page not in seen] == []


@pytest.mark.parametrize("page", DESIGNS, ids=_name)
def test_each_room_says_on_one_page_what_it_decides_and_never_does(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert 20 <= len(lines) <= 60
    assert [line for line in lines if line.startswith("## ")] == [
        "## What it decides",
        "## What it never does",
        "## Invariants",
        "## Why not the obvious",
        "## Tests",
    ]
    assert lines[0].startswith(f"# {page.parent.name}: ")


def test_the_index_of_the_reference_names_each_of_its_pages() -> None:
    index = (GENERATED / "README.md").read_text()
    assert [page.name for page in GENERATED.glob("*.md") if page.name != "README.md" and page.name not in index] == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_make_targets_that_are_named_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)\b(?!,)", _code(page))) - targets == set()


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_commands_that_are_named_exist(page: Path) -> None:
    assert set(re.findall(r"\brota ([a-z]+(?:-[a-z]+)*)\b", _code(page))) - set(rota.list_commands(None)) == set()  # type: ignore[arg-type]


@pytest.mark.parametrize("page", [page for page in WRITTEN if page.name != "CHANGELOG.md"], ids=_name)
def test_files_that_are_named_exist(page: Path) -> None:
    named = re.findall(rf"`((?:{FOLDERS})/[A-Za-z0-9_./-]*)`", page.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    "page", [page for page in WRITTEN if page.name != "CHANGELOG.md" and "examples" not in page.parts], ids=_name
)
def test_settings_that_are_named_exist(page: Path) -> None:
    named = {name.rstrip("_") for name in re.findall(r"\bROTA_[A-Z][A-Z0-9_]*", page.read_text())}
    assert unknown_settings(dict.fromkeys(named, "")) == []


def test_what_is_asked_for_in_architecture_is_where_it_says() -> None:
    section = (ROOT / "ARCHITECTURE.md").read_text().split("## Where is ...?")[1].split("\n## ")[0]
    rows = [row for row in section.splitlines() if row.startswith("| ") and "`" in row]
    assert len(rows) >= 10
    missing = []
    for row in rows:
        question, *steps = (cell.strip() for cell in row.strip("|").split(" | "))
        assert question.endswith("?"), row
        assert len(steps) == 2, row
        for path, names in re.findall(r"`([a-z_/]+\.py)`(?:: ((?:`[A-Za-z_.]+`(?:, )?)+))?", " ; ".join(steps)):
            assert (ROOT / path).exists(), f"{question} {path}"
            missing += [f"{path}: {name}" for name in re.findall(r"`([^`]+)`", names) if name not in _defined(path)]
    assert missing == []


def test_tests_that_the_page_about_raft_names_exist() -> None:
    named = re.findall(r"`(test_[a-z0-9_]+)`", (ROOT / "docs/explanation/raft.md").read_text())
    written = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_[a-z0-9_]+)\(", path.read_text(), re.MULTILINE)
    }
    assert len(named) > 50
    assert [name for name in named if name not in written] == []


def test_the_figures_of_the_readme_are_those_of_the_page_about_performance() -> None:
    short = _figures((ROOT / "README.md").read_text().split("## Measured")[1].split("\n## ")[0])
    whole = _figures((ROOT / "docs/explanation/performance.md").read_text())
    assert len(short) == 5
    assert [what for what, figure in short.items() if not whole.get(what, "").startswith(figure)] == []


def _figures(text: str) -> dict[str, str]:
    rows = [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("| ")]
    return {what: figure for what, figure in rows if what != "what"}


OUTSIDE = re.compile(
    r"RECOVERY\.md|design of record|\bdesign(?:'s)?,? sections? \d|\bsections? \d+ of the design"
    r"|[(#] ?sections? \d|/work/(?:shared|main|trees)"
)


def test_nothing_refers_to_a_page_outside_of_the_repository() -> None:
    found = []
    for path in _sources():
        name = _name(path)
        if not name.startswith(("CHANGELOG.md", "tests/unit/test_docs.py")):
            text = path.read_text()
            found += [f"{name}: {line.strip()}" for line in text.splitlines() if OUTSIDE.search(line)]
            named = re.findall(r"\bdocs/(?:how-to|explanation|tutorial)[a-z0-9/-]*\.md", text)
            found += [f"{name}: {page}" for page in named if not (ROOT / page).exists()]
    assert found == []


def _sources() -> list[Path]:
    folders = [ROOT / folder for folder in FOLDERS.split("|")]
    patterns = ("*.py", "*.md", "*.sh", "*.toml", "*.yml")
    nested = [path for folder in folders for pattern in patterns for path in folder.rglob(pattern)]
    return sorted([*nested, *(path for pattern in patterns for path in ROOT.glob(pattern)), ROOT / "Makefile"])


@cache
def _headings(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    if page.suffix != ".md":
        return frozenset()
    found = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.MULTILINE)
    return frozenset(re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-") for heading in found)


@cache
def _defined(path: str) -> frozenset[str]:
    """The functions and classes of a module, and the methods as Class.method."""
    names: set[str] = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{part.name}"
                for part in node.body
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return frozenset(names)


def _code(page: Path) -> str:
    """What stands in code, inline or in a block."""
    text = page.read_text()
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))
