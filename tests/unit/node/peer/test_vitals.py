from dataclasses import asdict
from typing import Any, get_type_hints

import pytest

from node.http.api.vitals import MemberLag, VitalsView, vitals_view
from node.peer.vitals import MemberVitals, PeerVitalsView, read_vitals

FULL = MemberVitals("0.2.0", True, 100, 60, -1500, {"etl": "no Spark"}, ["a file"])


def sent(**changes: Any) -> dict[str, Any]:
    return {"vitals": {**asdict(FULL), **changes}}


def test_what_a_member_of_this_build_sends_is_read_as_it_was() -> None:
    assert read_vitals(sent()) == FULL
    assert set(get_type_hints(PeerVitalsView)) == set(asdict(FULL))


def test_a_vital_that_only_a_newer_build_knows_is_left_out() -> None:
    assert read_vitals(sent(moons=2, tides={"high": [6, 18]})) == FULL


def test_a_vital_that_an_older_build_does_not_send_has_its_default() -> None:
    older = {"vitals": {"version": "0.1.0", "lease_held": False, "disk_total_bytes": 5}}
    assert read_vitals(older) == MemberVitals("0.1.0", False, disk_total_bytes=5)
    assert read_vitals({}) is None, "the first build sent none"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 2}, r"vitals\.version: .* string"),
        ({"lease_held": "yes"}, r"vitals\.lease_held: .* boolean"),
        ({"disk_total_bytes": "many"}, r"vitals\.disk_total_bytes: .* integer"),
        ({"unoffered": {"etl": 1}}, r"vitals\.unoffered: .* string"),
        ({"not_kept": "a file"}, r"vitals\.not_kept: .*"),
    ],
)
def test_a_vital_of_a_wrong_type_is_refused_by_its_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_vitals(sent(**changes))


@pytest.mark.parametrize("told", [{"lease_held": True}, ["version", "lease_held"], 5, "version"])
def test_vitals_without_what_every_build_sends_are_refused(told: Any) -> None:
    with pytest.raises(TypeError):
        read_vitals({"vitals": told})


def test_vitals_are_shown_by_their_names_but_for_the_disk_and_the_clock() -> None:
    shown: dict[str, Any] = dict(vitals_view("node-2", MemberLag(3, 0.25, FULL)))
    said: dict[str, Any] = {
        "node": "node-2",
        "away": None,
        "behind": 3,
        "answered_s": 0.25,
        "version": "0.2.0",
        "lease_held": True,
        "disk": {"total_bytes": 100, "free_bytes": 60},
        "clock_off_s": -0.0015,
    }
    assert {name: shown[name] for name in said} == said
    assert (shown["unoffered"], shown["not_kept"]) == (FULL.unoffered, FULL.not_kept)
    assert list(shown) == list(get_type_hints(VitalsView))


def test_what_a_member_does_not_say_is_null() -> None:
    older = dict(vitals_view("node-2", MemberLag(0, vitals=MemberVitals("0.1.0", True))))
    assert (older["disk"], older["clock_off_s"], older["unoffered"], older["not_kept"]) == (None, None, {}, ())
    down = dict(vitals_view("node-2", None))
    assert {name for name, value in down.items() if value is not None} == {"node", "away"}
