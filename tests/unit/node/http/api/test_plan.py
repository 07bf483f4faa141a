"""A plan is serialized in pieces, so that a long one blocks no thread."""

import json

import pytest

from node.duty.ownership import Ownership
from node.http.api.placement import plan_packed
from tests.unit.node.http.given import World


@pytest.mark.parametrize("tasks", [0, 1, 3, 4, 7])
def test_a_plan_in_pieces_is_the_plan(tasks: int) -> None:
    world = World()
    for number in range(tasks):
        world.task(f"task-{number}", pin="node-2")
    now = Ownership.of(world.state)
    then = now.without({"node-2"})
    plan = json.loads(plan_packed(now, then, batch=3))
    assert plan["moves"] == [{"task": m.task, "from": m.source, "to": m.target} for m in now.moves_to(then)]
    assert len(plan["moves"]) == tasks
    assert plan["load"] == {node: {"now": weight, "then": then.load()[node]} for node, weight in now.load().items()}
    assert json.loads(plan_packed(now, now))["moves"] == []
