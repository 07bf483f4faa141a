"""Bootstraps as the API shows them."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from node.history.feeders import feeders
from node.http.api.bootstraps import bootstraps_view, catching_up
from node.http.api.metrics import of_bootstrap
from node.http.api.peer import PeerBootstrapBody
from node.http.api.placement import bootstrap_owner_view
from node.peer.bootstrap import Bootstrap, begin, fed_by, finished_bootstrap, wait_because, with_portion
from node.peer.portions import Gap, Portion
from tasks.definition.spec import Spec
from tests.unit.node.http.given import NOW_US, World

ME = "node-2"
BEGUN = begin(ME, [Gap(0, 20)], NOW_US)
FETCHING = with_portion(fed_by(BEGUN, "node-3"), Portion(0, 5, ((3, b""), (5, b""))), 0.5)
WAITING = wait_because(FETCHING, "no other member is up")
DONE = finished_bootstrap(FETCHING, NOW_US + 1_000_000)


def test_a_bootstrap_is_shown_with_its_progress_and_its_feeders() -> None:
    view = catching_up(ME, {ME: FETCHING})
    assert view == {
        "state": "fetching",
        "feeder": "node-3",
        "runs": 2,
        "fed": {"node-3": 2},
        "index": 5,
        "progress": {"done": 5, "total": 20, "unit": "indexes"},
        "runs_per_s": 4.0,
        "started_at": "2026-11-18T11:06:40Z",
        "finished_at": None,
        "waiting": None,
    }
    waiting = catching_up(ME, {ME: WAITING})
    assert waiting is not None
    assert (waiting["state"], waiting["feeder"], waiting["waiting"]) == ("waiting", None, "no other member is up")
    assert catching_up(ME, {ME: DONE}) is None, "it lacks nothing any more"
    assert catching_up(ME, {"node-1": FETCHING}) is None


def test_all_bootstraps_are_listed_by_slot() -> None:
    world = World()
    views = bootstraps_view(world.state, {ME: DONE})
    assert [view["task"] for view in views] == ["bootstrap/node-1", "bootstrap/node-2", "bootstrap/node-3"]
    for view in views:
        order = feeders(world.state.seats(), view["member"])
        assert (view["owner"], view["preference"]) == (order[0], order)
    first, second, _ = (view["latest"] for view in views)
    assert first is None
    assert second is not None
    assert (second["state"], second["finished_at"]) == ("done", "2026-11-18T11:06:41Z")


@pytest.mark.parametrize(
    ("latest", "code", "detail", "running_on"),
    [
        (None, "not_due", "node-2 lacks no finished runs, as far as is known here", []),
        (
            FETCHING,
            "running",
            "node-3 sends node-2 the finished runs that it lacks: 5 of 20 indexes, 2 finished runs in 0.5 s: "
            "2 from node-3",
            [{"node": "node-3", "run_id": "bootstrap/node-2"}],
        ),
        (WAITING, "due", "node-2 lacks finished runs, and waits: no other member is up", []),
        (
            DONE,
            "not_due",
            "node-2 lacks no finished runs; it has fetched 2 finished runs in 0.5 s: 2 from node-3",
            [],
        ),
    ],
    ids=["none", "fetching", "waiting", "done"],
)
def test_its_owner_is_shown_as_that_of_a_task(
    latest: Bootstrap | None, code: str, detail: str, running_on: list[dict[str, str]]
) -> None:
    world = World()
    slots = world.state.seats()
    view = bootstrap_owner_view(world.state, slots, ME, latest)
    first, second = feeders(slots, ME)
    assert (view["task"], view["owner"], view["preference"]) == ("bootstrap/node-2", first, [first, second])
    assert view["because"] == [{"node": first, "verdict": "chosen"}]
    assert view["running_on"] == running_on
    assert view["standing"] == [{"code": code, "detail": detail, "until": None, "run_id": None}]
    without = [replace(slot, status="down") if slot.member == first else slot for slot in slots]
    then = bootstrap_owner_view(world.state, without, ME, latest)
    assert then["owner"] == second
    assert then["because"] == [{"node": first, "verdict": "down"}, {"node": second, "verdict": "chosen"}]


def test_metrics_of_the_latest_bootstrap() -> None:
    def values(bootstrap: Bootstrap | None) -> dict[str, float]:
        return {
            sample.name + "".join(sample.labels.values()): sample.value
            for metric in of_bootstrap(bootstrap)
            for sample in metric.samples
        }

    assert values(None) == {"rota_bootstrap_missing_indexes": 0, "rota_bootstrap_fetching_seconds": 0}
    assert values(FETCHING) == {
        "rota_bootstrap_missing_indexes": 15,
        "rota_bootstrap_runsnode-3": 2,
        "rota_bootstrap_fetching_seconds": 0.5,
    }


def test_no_task_of_a_user_has_the_name_of_a_bootstrap() -> None:
    with pytest.raises(ValidationError, match="name"):
        Spec.model_validate({"name": "bootstrap/node-2", "kind": "command"})


def test_what_one_member_tells_another_arrives_as_it_was() -> None:
    for told in (BEGUN, FETCHING, WAITING, DONE):
        fields = {name: getattr(told, name) for name in Bootstrap.__dataclass_fields__}
        assert PeerBootstrapBody.model_validate(fields).value() == told
