"""What CONTRIBUTING.md and the files of a project that others join say is so."""

import json
import os
import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from tasks.version import RELEASE
from tests.unit.test_docs import ROOT

PRODUCT = ("hashing", "tasks", "spark_tasks", "node", "testkit")
LISTS = dict(
    part.split("\n", 1)
    for part in (ROOT / "CONTRIBUTING.md").read_text().split("\n## Checklists\n")[1].split("\n### ")[1:]
)


def _examples(text: str) -> list[str]:
    """The names by which an example of a checklist is found, from its line "follow `NAME` (`NAME`, `NAME`):"."""
    [follow] = re.findall(r"[Ff]ollow (.+):$", text, re.MULTILINE)
    return re.findall(r"`([^`]+)`", follow)


def _places(text: str) -> set[str]:
    """The files that the numbered steps of a checklist name."""
    steps = re.findall(r"^\d\. (.+?)(?=^\d\. |\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return {path for step in steps for path in re.findall(r"`([\w/.-]+\.(?:py|md|html|toml))`", step)}


def _touched(names: list[str]) -> set[str]:
    """The files of the product, and pyproject.toml, that have one of the names in them, or are called so.

    Of a package's name only files outside of it: what is inside is its own affair.
    """
    word = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, names))})(?![\w-])")
    own = tuple(name.replace(".", "/") + "/" for name in names)
    files = [file for folder in PRODUCT for suffix in ("py", "html") for file in (ROOT / folder).rglob(f"*.{suffix}")]
    found = set()
    for file in (*files, ROOT / "pyproject.toml"):
        path = file.relative_to(ROOT).as_posix()
        if not path.startswith(own) and ({file.name, file.stem} & set(names) or word.search(file.read_text())):
            found.add(path)
    return found


def test_there_is_a_checklist_for_each_of_six_changes() -> None:
    assert sorted(LISTS) == [
        "Add a field of a row of the replicated state",
        "Add a kind",
        "Add a metric",
        "Add a setting",
        "Add a view of the page",
        "Add an entry of the replicated state",
    ]


@pytest.mark.parametrize("change", LISTS)
def test_a_checklist_names_every_place_of_the_product_that_its_example_touches(change: str) -> None:
    names, places = _examples(LISTS[change]), _places(LISTS[change])
    own = tuple(name.replace(".", "/") + "/" for name in names)
    said = {path for path in places if path.startswith((*PRODUCT, "pyproject.toml")) and not path.startswith(own)}
    assert said == _touched(names)


@pytest.mark.parametrize("change", LISTS)
def test_tests_and_pages_of_a_checklist_are_those_of_its_example(change: str) -> None:
    names, places = _examples(LISTS[change]), _places(LISTS[change])
    words = {word for name in names for word in (name, name.rpartition(".")[2], Path(name).stem.replace("_", "-"))}
    outside = sorted(path for path in places if path.startswith(("tests/", "docs/", "README")))
    assert any(path.startswith("tests/") for path in outside)
    assert [path for path in outside if not any(word in (ROOT / path).read_text() for word in words)] == []


def test_the_kind_that_the_checklist_follows_is_the_latest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    latest = list(project["entry-points"]["rota.kinds"].values())[-1]
    assert [latest.split(".kind:")[0]] == _examples(LISTS["Add a kind"])


def test_each_page_says_the_same_of_how_long_make_test_takes() -> None:
    makefile, readme, contributing = (
        (ROOT / name).read_text() for name in ("Makefile", "README.md", "CONTRIBUTING.md")
    )
    [said] = re.findall(r"^test: .*\((\d+ minutes) on two cores\)$", makefile, re.MULTILINE)
    assert re.findall(r"^make test  .*\((.+) on two cores\)$", readme, re.MULTILINE) == [said]
    assert re.findall(r"^\| `make test` \|.*\| (.+) \|$", contributing, re.MULTILINE) == [said]


@pytest.mark.parametrize(("lint", "tests", "code"), [("true", 0, 0), ("false", 0, 2), ("true", 1, 2)])
def test_make_test_says_how_long_it_took_and_whether_all_held(tmp_path: Path, lint: str, tests: int, code: int) -> None:
    pytest_here = tmp_path / "pytest"
    pytest_here.write_text(f"#!/bin/sh\necho tests run\nexit {tests}\n")
    pytest_here.chmod(0o755)
    # Without setup, which may be under way; `make lint` is only said to hold or not.
    command = ["make", "-o", "setup", f"BIN={tmp_path}", f"MAKE={lint}", "test"]
    # These tests are started by make themselves, which hands its own options and level on.
    env = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    *before, took = done.stdout.splitlines()
    assert re.fullmatch(r"make test took \d+ min \d+ s", took)
    assert before == ([] if lint == "false" else ["tests run"])


def test_hooks_before_a_commit_are_the_linters_of_make_lint() -> None:
    recipe = (ROOT / "Makefile").read_text().split("\nlint: ")[1].split("\n\n")[0]
    linters = [line.removesuffix(" .") for line in re.findall(r"^\t@\$\(BIN\)/(.+)$", recipe, re.MULTILINE)]
    [repo] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repo["repo"] == "local"
    assert [hook["entry"] for hook in repo["hooks"]] == [f".venv/bin/{linter}" for linter in linters]


@pytest.mark.parametrize("package", ["ruff", "mypy", "import-linter"])
def test_linters_are_of_the_version_that_the_lock_pins(package: str) -> None:
    pinned = re.findall(rf"^{package}==(\S+)", (ROOT / "requirements/dev.lock").read_text(), re.MULTILINE)
    assert pinned == [metadata.version(package)]


def test_the_dev_container_has_what_make_setup_and_the_browser_tests_need() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    image = (ROOT / ".devcontainer" / container["build"]["dockerfile"]).read_text()
    base = re.findall(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert re.findall(r"^FROM (\S+)$", image, re.MULTILINE) == base
    assert {"chromium", "git", "make"} <= set(image.split())
    targets = set(re.findall(r"^([a-z./-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    make, *named = container["postCreateCommand"].split()
    assert make == "make" and "setup" in named and set(named) <= targets


def test_the_license_is_the_one_that_the_project_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    text = (ROOT / "LICENSE").read_text()
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"] and "END OF TERMS AND CONDITIONS" in text
    built = (ROOT / "Dockerfile").read_text() + (ROOT / ".dockerignore").read_text()
    assert "COPY pyproject.toml README.md LICENSE /src/" in built and "!LICENSE\n" in built


def test_editors_keep_lines_as_long_as_ruff_does() -> None:
    width = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["line-length"]
    assert f"[*.{{py,toml}}]\nmax_line_length = {width}\n" in (ROOT / ".editorconfig").read_text()


def test_the_changelog_is_read_on_a_screen_and_has_no_release_that_is_being_built() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert text.count("\n") <= 55, "details belong in the commits"
    unreleased, *released = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert unreleased == "[Unreleased]"
    versions = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d", heading) for heading in released]
    assert versions
    assert None not in versions
    building, dev, _ = RELEASE.partition(".dev")
    assert (building in {version[1] for version in versions if version}) == (not dev)
