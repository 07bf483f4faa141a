"""Which kinds a member offers."""

import logging
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from node.app.offered_kinds import kinds_to_offer, preparations_of, terms_of
from node.duty.room import KindTerms
from node.execution.preparation import Preparation
from tasks.installed_kinds import KindEntry, KindError
from tasks.kind import Context


class Plain:
    """Needs nothing."""

    class Params(BaseModel):
        pass

    requires: tuple[str, ...] = ()

    def run(self, ctx: Context[Any]) -> None:
        return None


class Here(Plain):
    requires = ("json", "asyncio.events")


class NotHere(Plain):
    requires = ("json", "no_such_package")


class NotHereEither(Plain):
    requires = ("no_such_package.inside",)


class Asks(Plain):
    environment: ClassVar[dict[str, str]] = {"RUN_ENGINE": "ROTA_ENGINE", "MINE": "ROTA_SECRET"}


def entries(**kinds: str) -> dict[str, KindEntry]:
    return {name: KindEntry(name, f"tests.unit.node.app.test_offered_kinds:{target}") for name, target in kinds.items()}


def test_a_kind_is_offered_if_it_loads_and_its_packages_are_installed(caplog: pytest.LogCaptureFixture) -> None:
    kinds = entries(plain="Plain", here="Here", far="NotHere", farther="NotHereEither", broken="Nobody")
    with caplog.at_level(logging.INFO, "rota.kinds"):
        assert sorted((found := kinds_to_offer(kinds, allow_command=False)).offered) == ["here", "plain"]
    assert "broken is not offered" in caplog.text
    assert "no_such_package.inside" in caplog.text
    assert found.why_not("here") is None
    assert found.why_not("far") == "these packages are not installed: no_such_package"
    assert "cannot be loaded" in (found.why_not("broken") or "")
    assert found.why_not("foreign") == "it is not installed there"
    commands = kinds_to_offer(entries(command="Plain"), allow_command=False)
    assert commands.why_not("command") == "its ROTA_ALLOW_COMMAND is not 1"


def test_an_offered_kind_brings_the_settings_that_it_asks_for(caplog: pytest.LogCaptureFixture) -> None:
    assert kinds_to_offer(entries(asks="Asks"), allow_command=False).offered["asks"].environment == Asks.environment
    assert "asks for ROTA_SECRET, a setting of the node itself, which kinds do not get" in caplog.text


@pytest.mark.parametrize("allowed", [False, True])
def test_commands_are_run_only_where_that_is_allowed(allowed: bool) -> None:
    assert bool(kinds_to_offer(entries(command="Plain"), allow_command=allowed).offered) is allowed


START = "engines:start"
LOAD = KindEntry("load", "m:Load", {"RUN_ENGINE": "ROTA_ENGINE"}, START, ("engines:tools",), "ROTA_ENGINES")
COPY = KindEntry(
    "copy",
    "m:Copy",
    {"RUN_HEAP": "ROTA_HEAP", "RUN_UNSET": "ROTA_UNSET"},
    START,
    ("engines:tools", "copy:tools"),
    "ROTA_ENGINES",
)
PLAIN = KindEntry("plain", "m:Plain")
KINDS = {kind.name: kind for kind in (LOAD, COPY, PLAIN)}


def test_kinds_that_share_a_preparation_share_its_variables_and_tools() -> None:
    settings = {"ROTA_ENGINE": "local", "ROTA_HEAP": "1g", "ROTA_OTHER": "x"}
    assert preparations_of(KINDS, settings) == {
        START: Preparation({"RUN_ENGINE": "local", "RUN_HEAP": "1g"}, ("engines:tools", "copy:tools"))
    }
    assert preparations_of({"plain": PLAIN}, settings) == {}


@pytest.mark.parametrize(("settings", "max_runs", "most"), [({}, 8, 4), ({}, 1, 1), ({"ROTA_ENGINES": "3"}, 8, 3)])
def test_a_bound_is_its_setting_or_half_of_all_attempts(settings: dict[str, str], max_runs: int, most: int) -> None:
    terms = KindTerms(START, "ROTA_ENGINES", most)
    assert terms_of(KINDS, settings, max_runs) == {"load": terms, "copy": terms}


@pytest.mark.parametrize("given", ["0", "many", "-1", "10001"])
def test_a_bound_that_is_none_keeps_the_node_from_starting(given: str) -> None:
    with pytest.raises(KindError, match=f"ROTA_ENGINES='{given}': must be a whole number from 1 to 10000"):
        terms_of(KINDS, {"ROTA_ENGINES": given}, 8)


def test_a_preparation_without_a_bound_has_room_for_all_attempts() -> None:
    unbound = KindEntry("load", "m:Load", {}, START)
    assert terms_of({"load": unbound}, {}, 8) == {"load": KindTerms(START, "", 8)}
