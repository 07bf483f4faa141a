"""What a member makes of what its kinds ask for."""

import pytest

from node.app.kind_terms import preparations_of, terms_of
from node.duty.room import KindTerms
from node.execution.preparation import Preparation
from tasks.installed_kinds import KindEntry, KindError

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
