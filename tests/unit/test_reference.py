"""The reference pages say what the code says."""

import re
from pathlib import Path

import click
import pytest

from node.cli.main import rota
from node.settings.table import FILE_NAMES, SETTINGS
from tasks.command.ctx import VARIABLES
from tasks.installed_kinds import installed, settings_asked_for
from testkit.reference.cli import _commands
from testkit.reference.pages import ROOT, WRITE_COMMAND, Page, pages


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.path)
def test_a_reference_page_is_what_the_code_makes(page: Page) -> None:
    kept = page.file.read_text() if page.file.exists() else ""
    assert kept == page.render(), f"{page.path} is out of date; write it with: {WRITE_COMMAND}"


def test_every_option_of_the_command_line_is_explained() -> None:
    lacking = [
        f"{name} {parameter.opts[0]}"
        for name, command in _commands(rota, click.Context(rota), "rota")
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.help
    ]
    assert lacking == []


@pytest.mark.parametrize("page", sorted(path.name for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"))
def test_settings_that_a_page_names_are_in_the_table(page: str) -> None:
    of_kinds = settings_asked_for(installed().values())
    known = {*SETTINGS, *FILE_NAMES, *VARIABLES, *of_kinds, *_compose_variables(ROOT / "docker-compose.yml")}
    named = set(re.findall(r"\bROTA_[A-Z0-9_]*[A-Z0-9]\b", (ROOT / page).read_text()))
    assert sorted(named - known) == []


def _compose_variables(file: Path) -> set[str]:
    return set(re.findall(r"\$\{(ROTA_[A-Z0-9_]+)", file.read_text()))
