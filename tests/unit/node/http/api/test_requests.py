"""Constraints of request models beyond types."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from node.http.api.members import MemberBody
from node.http.api.peer import PeerLogQuery
from node.http.api.run_starts import StartBody
from node.http.api.saved import PutBackBody
from node.state.restoring import COUNT_MAX
from node.state.shape import LATEST_US

MEMBER = {"id": "node-4", "host": "host-4", "raft_port": 7001, "http_port": 8101}
KEPT = {"task": {}, "order": 1, "version": 1, "registered_at_us": 0, "since_us": 0, "through_us": 0}
SAVED = {"beside": 0, "token": 0, "orders": 1, "tasks": [KEPT]}


def _refused(model: type[BaseModel], given: Any) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(given)
    return [str(error["loc"][-1]) for error in caught.value.errors()]


@pytest.mark.parametrize("host", ["a..b", ".", "x" * 64 + ".lan"])
def test_a_host_name_that_cannot_be_encoded_is_refused(host: str) -> None:
    assert _refused(MemberBody, {**MEMBER, "host": host}) == ["host"]


@pytest.mark.parametrize("host", ["::1", "127.0.0.1", "node-4.lan", "node-4.lan.", "x" * 63])
def test_addresses_and_names_are_hosts(host: str) -> None:
    assert MemberBody.model_validate({**MEMBER, "host": host}).host == host


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59-14:00", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"])
def test_the_time_of_a_manual_run_is_within_the_calendar(at: str) -> None:
    assert _refused(StartBody, {"fire_at": at}) == ["fire_at"]
    assert StartBody.model_validate({"fire_at": "1970-01-01T01:00:00+01:00"}).fire_at is not None


@pytest.mark.parametrize("name", ["beside", "token", "orders"])
def test_the_counters_of_a_saved_cluster_are_bounded(name: str) -> None:
    assert _refused(PutBackBody, {**SAVED, name: COUNT_MAX}) == [name]


@pytest.mark.parametrize("name", ["order", "version", "skipped", "missed"])
def test_the_counters_of_a_saved_task_are_bounded(name: str) -> None:
    # The next change would make it one that no snapshot can hold.
    assert _refused(PutBackBody, {**SAVED, "tasks": [{**KEPT, name: 2**64 - 1}]}) == [name]


@pytest.mark.parametrize("name", ["since_us", "through_us"])
def test_a_saved_schedule_does_not_continue_after_the_calendar(name: str) -> None:
    assert _refused(PutBackBody, {**SAVED, "tasks": [{**KEPT, name: LATEST_US}]}) == [name]


@pytest.mark.parametrize("run_id", ["..", "../../x", "a/b", "", "x" * 256, "a\0b"])
def test_a_log_is_requested_by_run_and_not_by_path(run_id: str) -> None:
    assert PeerLogQuery(run_id="a.b-c~20261121T055500.000000Z~7", attempt=1).attempt == 1
    with pytest.raises(ValidationError):
        PeerLogQuery(run_id=run_id, attempt=1)
