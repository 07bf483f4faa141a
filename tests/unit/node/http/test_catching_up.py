"""A write to a member that is behind: it is not refused for want of what the others have."""

import asyncio
from typing import cast

import pytest

from node.http.problems import Problem
from node.http.request_context import Call
from node.http.routes.tasks import task_to_change
from node.state.value import State
from tests.unit.node.state.given import cluster


class Behind:
    """A call to a member that knows nothing yet, until it has caught up with `ahead`."""

    def __init__(self, name: str, ahead: State) -> None:
        self.state = State()
        self._name = name
        self._ahead = ahead

    def path(self, _: str) -> str:
        return self._name

    async def catch_up(self) -> None:
        self.state = self._ahead


def test_a_task_that_is_not_known_yet_is_found_after_catching_up() -> None:
    history = cluster("a")
    history.put("known")
    found = asyncio.run(task_to_change(cast(Call, Behind("known", history.state))))
    assert found == "known"


@pytest.mark.parametrize("name", ["unknown", "no name"])
def test_what_nobody_knows_is_not_found(name: str) -> None:
    with pytest.raises(Problem, match=name):
        asyncio.run(task_to_change(cast(Call, Behind(name, cluster("a").state))))
