"""The page of members over real HTTP servers: what each says of itself, and draining with a preview."""

from dataclasses import dataclass
from typing import Any

import pytest

from node.peer.vitals import MemberVitals
from node.state.members import Drain, MarkDown
from testkit.http.fake_node import FakeNode
from testkit.http.http_cluster import Servers, on_loop, servers
from testkit.http.web_visitor import Visitor, text_of

pytestmark = pytest.mark.integration

THREE = ("node-1", "node-2", "node-3")


@dataclass
class Ailing(FakeNode):
    """Its lease has lapsed, its clock is off, and it offers one kind less than the others."""

    def vitals(self) -> MemberVitals:
        return MemberVitals("0.0.9", False, 2 << 40, 3 << 30, -7_200_000)

    def unoffered(self, kind: str) -> str | None:
        return "its ROTA_ALLOW_COMMAND is not 1" if kind == "copy" else None


def vitals_of(page: dict[str, Any], member: str) -> dict[str, Any]:
    return next(one for one in page["items"] if one["node"] == member)


def is_drained(served: Servers, member: str) -> bool:
    return served.cluster.machine.state.members[member].drained


@on_loop
async def test_each_member_says_itself_how_it_is() -> None:
    async with servers(THREE) as served:
        served.nodes["node-2"].__class__ = Ailing
        page = (await served.get("/v1/vitals")).json
        assert [one["node"] for one in page["items"]] == list(THREE)
        here, ailing = vitals_of(page, "node-1"), vitals_of(page, "node-2")
        assert (here["version"], here["lease_held"], here["behind"], here["unoffered"]) == ("0.1.0", True, 0, {})
        assert (ailing["version"], ailing["lease_held"], ailing["clock_off_s"]) == ("0.0.9", False, -7.2)
        assert ailing["disk"] == {"total_bytes": 2 << 40, "free_bytes": 3 << 30}
        assert ailing["unoffered"] == {"copy": "its ROTA_ALLOW_COMMAND is not 1"}
        said = text_of(await Visitor(served).get("/members"))
        assert "3 of 3 members can vote, 2 needed · node-1 leads" in said
        assert "not held: its runs are frozen" in said
        assert "7.2 s behind the members' time" in said
        assert "not copy : its ROTA_ALLOW_COMMAND is not 1" in said
        assert "3 GiB of" in said
        assert "disk=ssd" in said


@on_loop
async def test_members_that_are_down_or_do_not_answer_are_told_apart() -> None:
    async with servers(THREE) as served:
        state = served.cluster.machine.state
        served.cluster.ok(MarkDown(served.cluster.now_us, "node-2", 1, "silent", state.lead.term))
        await served.stop("node-3")
        page = (await served.get("/v1/vitals")).json
        assert vitals_of(page, "node-2")["away"] == "it is down"
        assert "node-3 does not answer" in vitals_of(page, "node-3")["away"]
        assert vitals_of(page, "node-3")["version"] is None
        said = text_of(await Visitor(served).get("/members"))
        assert "2 of 3 members can vote" in said
        assert "down: silent" in said
        assert "node-3 does not answer" in said


@on_loop
async def test_draining_is_previewed_and_done() -> None:
    async with servers(THREE) as served:
        visitor = Visitor(served)
        for number in range(9):
            await served.put_task(f"task-{number}", schedule={"every_s": 7200})
        task = next(
            name
            for name, _ in served.cluster.machine.state.tasks.items()
            if served.cluster.ownership.owner(name) == "node-2"
        )
        run_id = await served.start_run(task)
        served.claim(run_id, "node-2")
        preview = text_of(await visitor.part("/members?part=preview&member=node-2"))
        assert "tasks would move: " in preview
        assert f"1 attempt would finish here: {task}" in preview
        assert "Every task that has an owner now would have one" in preview
        assert not is_drained(served, "node-2"), "only asked"
        notice = await visitor.press("/members/node-2/drain", **{"HX-Request": "true"})
        assert "node-2 gets no new runs" in text_of(notice)
        assert is_drained(served, "node-2")
        cards = await visitor.part("/members?part=cards")
        assert "drained" in text_of(cards)
        assert b"/members/node-2/undrain" in cards.body
        back = text_of(await visitor.part("/members?part=preview&member=node-2"))
        assert "36 occurrences of 108 within 24 h would begin on another member" in back
        await visitor.press("/members/node-2/undrain")
        assert not is_drained(served, "node-2")
        unknown = await visitor.part("/members?part=preview&member=nobody")
        assert (unknown.status, "there is no member" in text_of(unknown)) == (404, True)


@on_loop
async def test_what_nobody_could_run_is_said_before_draining() -> None:
    async with servers(("node-1", "node-2")) as served:
        await served.put_task("anywhere")
        served.cluster.ok(Drain(served.cluster.now_us, "node-2", True))
        preview = text_of(await Visitor(served).part("/members?part=preview&member=node-1"))
        assert "Nobody could run 1 task: anywhere" in preview
        assert "node-1 is down; node-2 is draining" in preview
