"""Finds the modules of this package that make pages."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import testkit.reference

ROOT: Final = Path(__file__).parents[2]
WRITE_COMMAND: Final = "make reference"


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its path from the root of the repository, and what makes its text."""

    path: str
    render: Callable[[], str]

    @property
    def file(self) -> Path:
        """Where the page is kept."""
        return ROOT / self.path


def pages() -> list[Page]:
    """All pages, by the names of their modules."""
    found = []
    for name in sorted(module.name for module in pkgutil.iter_modules(testkit.reference.__path__)):
        if name == "__main__":
            continue
        module = importlib.import_module(f"testkit.reference.{name}")
        if hasattr(module, "PATH") and hasattr(module, "render"):
            found.append(Page(module.PATH, module.render))
    return found
