"""Writes to a member that is behind: it catches up before it refuses one."""

import asyncio
from typing import cast

import pytest

from node.http.api.tasks import task_to_change
from node.http.door.problems import Problem
from node.http.door.request_context import RequestContext
from node.state.value import State
from tests.unit.node.state.given import cluster


class Behind:
    """A request to a member whose state is empty until it has caught up with `ahead`."""

    def __init__(self, name: str, ahead: State) -> None:
        self.state = State()
        self._name = name
        self._ahead = ahead

    def path(self, _: str) -> str:
        return self._name

    async def catch_up(self) -> None:
        self.state = self._ahead


def test_a_task_that_is_unknown_here_is_found_after_catching_up() -> None:
    history = cluster("a")
    history.put("known")
    found = asyncio.run(task_to_change(cast(RequestContext, Behind("known", history.state))))
    assert found == "known"


@pytest.mark.parametrize("name", ["unknown", "no name"])
def test_a_task_that_no_member_knows_is_not_found(name: str) -> None:
    with pytest.raises(Problem, match=name):
        asyncio.run(task_to_change(cast(RequestContext, Behind(name, cluster("a").state))))
