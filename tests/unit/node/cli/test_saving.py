"""What is loaded from a file of which the cluster refuses a part."""

from typing import Any

import pytest

from node.cli.saving import RefusedChannels, load_missing
from node.client import ApiProblem
from node.state.saved import Saved


class _Cluster:
    """A cluster without tasks that refuses one channel, as a client sees it."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def get(self, target: str) -> dict[str, Any]:
        return {"items": [{"name": "there"}]}

    def call(self, method: str, target: str, *, body: Any, timeout_s: float, query: Any = None) -> None:
        if target.endswith("/useless"):
            raise ApiProblem(422, "", "Some fields are invalid", "", (("", "it would tell nothing"),))
        self.made.append(target if query is None else f"{target} {query['set']}")


def test_a_channel_that_is_refused_keeps_no_other_from_being_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.cli.saving._present", lambda *_: set())
    cluster = _Cluster()
    channels: dict[str, Any] = {"there": {}, "useless": {}, "vital": {}}
    head: dict[str, Any] = {"settings": {}, "token": 0, "orders": 0, "channels": channels, "calendars": {"c": []}}
    head |= {"settings": {"pools": {"p": 1, "q": 2}}, "pool_sets": {"p": "a"}, "calendar_sets": {"c": "b"}}
    with pytest.raises(RefusedChannels, match=r"useless \(.*it would tell nothing") as refused:
        load_missing(cluster, Saved(head, []))  # type: ignore[arg-type]
    assert cluster.made == ["/v1/calendars/c b", "/v1/settings a", "/v1/cluster/saved", "/v1/channels/vital"]
    assert "vital" not in str(refused.value)
