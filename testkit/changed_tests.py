"""`python -m testkit.changed_tests BASE`: prints which test files a change since the commit BASE touches.

For `make test-changed`. By imports and folders, without a record of what each test executes (as pytest-testmon makes in
a run of all tests): many tests start nodes as processes of their own, in which nothing would be recorded.
"""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PRODUCT: Final = ("hashing", "tasks", "spark_tasks", "node")
HELPERS: Final = ("testkit", "tests", "bench", "examples")
_OF_ALL: Final = PurePosixPath("tests/unit")
"""Tests that lie here directly hold something of the whole tree: documents, names, images, reference pages."""


def touched_tests(changed: Iterable[str], sources: Mapping[str, str]) -> list[str]:
    """The test files to run for the files `changed`, sorted; none if nothing is changed.

    `sources` has the text of each Python file of tests and helpers by its path. Taken are tests that import a changed
    module themselves or by helpers; tests in the folder that mirrors a changed file of the product; tests below a
    changed `conftest.py`; changed tests; and the tests of the whole tree. Deleted files are in `changed` only.
    """
    changed = set(changed)
    if not changed:
        return []
    tests = [path for path in sources if _is_test(path)]
    imports = {path: _imported(text) for path, text in sources.items()}
    reached = {_module(path) for path in changed if path.endswith(".py")}
    while more := {
        _module(path)
        for path, names in imports.items()
        if not _is_test(path) and not names.isdisjoint(reached) and _module(path) not in reached
    }:
        reached |= more
    folders = {_OF_ALL, *(_mirror(path, tests) for path in changed if path.split("/")[0] in PRODUCT)}
    above = {PurePosixPath(path).parent for path in changed if path.endswith("/conftest.py")}
    return sorted(
        path
        for path in tests
        if path in changed
        or not imports[path].isdisjoint(reached)
        or PurePosixPath(path).parent in folders
        or not above.isdisjoint(PurePosixPath(path).parents)
    )


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and PurePosixPath(path).match("test_*.py")


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _mirror(path: str, tests: Iterable[str]) -> PurePosixPath:
    """The folder of unit tests for a file of the product; if it has no tests, the nearest folder above that has."""
    filled = {PurePosixPath(one).parent for one in tests}
    return next(folder for above in PurePosixPath(path).parents if (folder := _OF_ALL / above) in {*filled, _OF_ALL})


def _imported(text: str) -> frozenset[str]:
    """The modules that a text imports, at any depth. `from a import b` may name the module a.b or a name of a."""
    return frozenset(_names(ast.parse(text)))


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words, "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return [path for path in done.stdout.split("\0") if path]


def main() -> None:
    """Print the test files, one a line; nothing if nothing differs. Ends with git's error if BASE is no commit."""
    if len(sys.argv) != 2:
        raise SystemExit("python -m testkit.changed_tests BASE: a commit or branch to compare with, such as main")
    differing = _git("diff", "--name-only", "--no-renames", "--merge-base", sys.argv[1])
    new = _git("ls-files", "--others", "--exclude-standard")
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard", *(f"{one}/*.py" for one in HELPERS))
    sources = {path: (ROOT / path).read_text() for path in listed if (ROOT / path).exists()}
    print("\n".join(touched_tests([*differing, *new], sources)))


if __name__ == "__main__":
    main()
