"""A new node asks to be let in (ROTA_JOIN)."""

from dataclasses import asdict
from typing import Any

import pytest

from node.client import ApiProblem, Unreachable
from node.membership.join_request import JoinRequest, NotLetIn, let_in_as
from node.state.entries import Seed
from tests.unit.node.loop import Naps, serving

ME = Seed("d", "127.0.0.1", 7004, 8104)
OTHERS = tuple(Seed(name, "127.0.0.1", 7000 + number, 8100 + number) for number, name in enumerate("abc"))
BUSY = ApiProblem(409, "urn:rota:problem:conflict", "This is not possible as things stand", "another one is under way")
UNKNOWN = ApiProblem(504, "urn:rota:problem:outcome-unknown", "It may yet be committed", "")


class Cluster:
    """Answers with its members; what is in `trouble` first."""

    def __init__(self, *members: Seed, founded: bool = True) -> None:
        self.members = members
        self.founded = founded
        self.reading: list[Exception] = []
        self.adding: list[Exception] = []
        self.posted = 0

    def get(self, path: str) -> Any:
        assert path == "/peer/members"
        if self.reading:
            raise self.reading.pop(0)
        members = [asdict(one) for one in self.members]
        return {"cluster_id": "c" if self.founded else "", "index": 7, "members": members}

    def call(self, method: str, path: str, *, body: Any) -> Any:
        assert (method, path) == ("POST", "/peer/members")
        self.posted += 1
        error = self.adding.pop(0) if self.adding else None
        if error is not BUSY:
            self.members = (*self.members, Seed(**body))
        if error is not None:
            raise error


def came(cluster: Cluster, tries: int = 5) -> tuple[Seed, ...]:
    """Whom a newcomer takes for the members at its start; then it asks to be one."""
    join_request = JoinRequest(ME, "http://c", cluster)
    members = join_request.members(lambda _: None, tries)
    serving(join_request.enter(Naps(), tries))
    return members


def test_one_that_is_no_member_yet_starts_as_if_it_were_and_is_added_once_it_runs() -> None:
    """In a cluster of one it is needed for the majority that takes it in."""
    cluster = Cluster(*OTHERS)
    join_request = JoinRequest(ME, "http://c", cluster)
    assert join_request.members(lambda _: None) == (*OTHERS, ME)
    assert cluster.posted == 0
    serving(join_request.enter(Naps()))
    assert (cluster.posted, cluster.members) == (1, (*OTHERS, ME))


def test_one_that_was_let_in_before_is_not_added_again() -> None:
    cluster = Cluster(*OTHERS, ME)
    assert came(cluster) == (*OTHERS, ME)
    assert cluster.posted == 0


def test_one_that_was_let_in_before_need_not_say_where_it_is() -> None:
    """Section 10: ROTA_MEMBERS or ROTA_JOIN."""
    cluster = Cluster(*OTHERS, ME)
    cluster.reading = [Unreachable("no member answered")]
    assert let_in_as("d", "http://c", cluster, lambda _: None) == ME


def test_one_that_is_nowhere_is_told_both_ways_in() -> None:
    with pytest.raises(NotLetIn, match=r"rota join http://c --id d --at .* ROTA_MEMBERS=d=host:raftport:httpport"):
        let_in_as("d", "http://c", Cluster(*OTHERS), lambda _: None)


def test_a_change_under_way_is_waited_for_and_an_unknown_outcome_looked_at() -> None:
    cluster = Cluster(OTHERS[0])
    cluster.reading = [Unreachable("no member answered")]
    cluster.adding = [BUSY, UNKNOWN]
    assert came(cluster) == (OTHERS[0], ME)
    assert (cluster.posted, cluster.members) == (2, (OTHERS[0], ME))


@pytest.mark.parametrize(
    ("member", "why"),
    [
        (Seed("d", "127.0.0.1", 7009, 8104), "d is a member already, at 127.0.0.1:7009:8104"),
        (Seed("e", "127.0.0.1", 7004, 8105), "127.0.0.1:7004 is where e is"),
    ],
)
def test_who_would_take_anothers_place_is_refused(member: Seed, why: str) -> None:
    with pytest.raises(NotLetIn, match=why):
        came(Cluster(*OTHERS, member))


@pytest.mark.parametrize(("status", "why"), [(401, "has another secret"), (404, "http://c is no member of a cluster")])
def test_what_the_cluster_does_not_understand_is_said(status: int, why: str) -> None:
    cluster = Cluster(*OTHERS)
    cluster.reading = [ApiProblem(status, "", "", "")]
    with pytest.raises(NotLetIn, match=why):
        came(cluster)


def test_a_refusal_for_good_is_not_asked_about_again() -> None:
    cluster = Cluster(*OTHERS)
    cluster.adding = [ApiProblem(422, "", "Some fields are not right", "host: is missing")]
    cluster.members = OTHERS
    with pytest.raises(NotLetIn, match="host: is missing"):
        came(cluster)
    assert cluster.posted == 1


@pytest.mark.parametrize(
    ("cluster", "why"), [(Cluster(founded=False), "it has no members yet"), (Cluster(*OTHERS), "cannot connect")]
)
def test_a_cluster_that_is_not_there_in_time_is_said_to_be_so(cluster: Cluster, why: str) -> None:
    cluster.reading = [Unreachable("no member answered: cannot connect")] * 9 if cluster.founded else []
    with pytest.raises(NotLetIn, match=why):
        came(cluster)


def test_that_a_cluster_is_waited_for_is_said_at_once_and_once(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing was said for the minute that it lasts."""
    cluster = Cluster(*OTHERS)
    cluster.reading = [Unreachable("no member answered: cannot connect")] * 3
    assert came(cluster) == (*OTHERS, ME)
    waits = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert waits == ["ROTA_JOIN=http://c: no member answered: cannot connect; asking again for 2 s"]


def test_something_else_at_that_address_is_said_to_be_no_member() -> None:
    cluster = Cluster(*OTHERS)
    cluster.get = lambda path: ["hello"]  # type: ignore[method-assign]
    with pytest.raises(NotLetIn, match="is no member of a cluster"):
        came(cluster)
