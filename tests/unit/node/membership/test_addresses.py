"""Where the members' Raft ports are, when addresses change: by the configuration, or by what was agreed on."""

import asyncio

import pytest

from node.membership.addresses import Address, Addresses, Agreed, NoMember, at_start, learnt
from node.raft.ports import RaftRole
from node.state.value import State
from tests.unit.node.loop import serving, turns, until
from tests.unit.node.membership.fake_member import FakeMember
from tests.unit.node.state.given import History, cluster

OLD, NEW, NEWER = ("h", 1), ("h", 2), ("h", 3)


def test_at_the_first_start_the_configuration_says_where_they_are() -> None:
    assert at_start("a", {"a": OLD, "b": NEW}, {}) == {"a": OLD, "b": NEW}


def test_later_the_state_says_it_as_long_as_the_configuration_stays_what_it_was() -> None:
    """The member has said so itself when it joined last; the configuration here may be behind."""
    assert at_start("a", {"a": OLD, "b": OLD}, {"a": Agreed(OLD, OLD), "b": Agreed(NEW, OLD)})["b"] == NEW


def test_a_configuration_that_was_changed_since_is_newer() -> None:
    assert at_start("a", {"a": OLD, "b": NEW}, {"a": Agreed(OLD, OLD), "b": Agreed(OLD, OLD)})["b"] == NEW


def test_who_joined_later_need_not_be_in_the_configuration_and_who_has_left_may_be() -> None:
    assert at_start("a", {"a": OLD, "gone": OLD}, {"a": Agreed(OLD, OLD), "late": Agreed(NEW, None)}) == {
        "a": OLD,
        "late": NEW,
    }


def test_where_a_node_itself_listens_its_configuration_says() -> None:
    assert at_start("a", {"a": NEW}, {"a": Agreed(OLD, NEW)})["a"] == NEW


def test_the_folder_of_a_removed_member_is_refused_with_what_to_do() -> None:
    with pytest.raises(NoMember, match=r"a has been removed from the cluster .* empty the folder .* ROTA_JOIN"):
        at_start("a", {"a": OLD}, {"b": Agreed(OLD, OLD)})


def test_a_changed_configuration_is_believed_at_each_start_until_the_member_has_joined_there() -> None:
    agreed = learnt({"b": NEW}, {"b": Agreed(OLD, OLD)}, {"b": OLD})
    assert at_start("b", {"b": NEW}, agreed) == {"b": NEW}
    assert at_start("a", {"b": NEW}, {**agreed, "a": Agreed(OLD, None)})["b"] == NEW
    assert learnt({"b": NEW}, agreed, {"b": NEWER}) == {"b": Agreed(NEWER, NEW)}


class Node:
    """Member `a`, catching up."""

    def __init__(self, history: History, agreed: dict[str, Agreed]) -> None:
        self.state: State = history.state
        self.role = RaftRole(1, "b", False, True, False)
        self.moved: dict[str, Address] = {}
        self.kept: list[dict[str, Agreed]] = []
        configured = {"a": ("a.example", 7001), "b": ("b.example", 7001)}
        member = FakeMember("a", lambda: self.state, role=lambda: self.role)
        self.addresses = Addresses(member, configured, agreed, self.moved.__setitem__, self._keep)

    async def _keep(self, agreed: object) -> None:
        self.kept.append(agreed)  # type: ignore[arg-type]

    def ready(self) -> None:
        self.role = RaftRole(1, "b", False, True, True)
        self.addresses.wake()


def test_addresses_that_pass_by_in_a_replay_are_neither_dialled_nor_written_down() -> None:
    async def scenario() -> None:
        node = Node(cluster("a", "b"), {})
        service = asyncio.create_task(node.addresses.run())
        node.addresses.wake()
        await turns()
        assert (node.moved, node.kept) == ({}, [])
        node.ready()
        await until(lambda: node.kept)
        assert node.moved == {"b": ("b.example", 7001)}
        assert sorted(node.kept[0]) == ["a", "b"]
        node.addresses.wake()
        await turns()
        assert len(node.kept) == 1
        service.cancel()

    serving(scenario())


def test_what_is_as_it_was_agreed_on_moves_nobody() -> None:
    """Else the address before would take the place of one that was configured anew."""

    async def scenario() -> None:
        at = ("b.example", 7001)
        node = Node(cluster("a", "b"), {"a": Agreed(("a.example", 7001), None), "b": Agreed(at, ("b.example", 1))})
        service = asyncio.create_task(node.addresses.run())
        node.ready()
        await turns()
        assert (node.moved, node.kept) == ({}, [])
        service.cancel()

    serving(scenario())
