"""What explains a log line or a node's end, and what does not."""

import pytest

from bench.chaos import asking
from bench.chaos.asking import patterns, unasked
from bench.chaos.caretaker import Ended
from bench.chaos.checker import members
from bench.chaos.deck import CARDS, Deck
from bench.chaos.faults.machines import HUNG
from bench.chaos.recovery import Struck

DAMAGED = {("damaged files", "node-2"): 1}
FULL = {("full disk", "node-2"): 1}


def unexplained(line: str, node: str, struck: dict[tuple[str, str], int], before: int = 1) -> bool:
    log = ["2026-11-21 10:47:34,000 INFO    rota: it serves"] * before + [f"2026-11-21 10:47:35,000 ERROR   {line}"]
    return bool(members.alarms(f"{node}.log", log, patterns(node, struck))[1])


@pytest.mark.parametrize(
    ("line", "struck"),
    [
        ("rota.history: h.db is damaged (file is not a database): kept as h.db.damaged-1", DAMAGED),
        ("rota.http: answering GET /v1/runs failed: database disk image is malformed", DAMAGED),
        ("node.raft.log.log_store: raft/flushes cannot be read: it is kept as raft/flushes.damaged-1", DAMAGED),
        ("rota.history: finished runs cannot be written to h.db: database or disk is full; trying again", FULL),
        (
            "rota.clock: this machine's wall clock is 3600.0 s ahead of most members' clocks: theirs is used here",
            {("clock an hour ahead", "node-2"): 1},
        ),
        ("rota.raft_watchdog: Raft thread blocked for 1.0 s: the disk of ROTA_DATA", {(HUNG, "node-2"): 1}),
    ],
)
def test_what_a_fault_explains_it_explains_of_its_victim_from_then_on(
    line: str, struck: dict[tuple[str, str], int]
) -> None:
    assert not unexplained(line, "node-2", struck)
    assert unexplained(line, "node-2", {})
    assert unexplained(line, "node-1", struck)
    assert unexplained(line, "node-2", struck, before=0)


@pytest.mark.parametrize("kind", [HUNG, "SIGSTOP one"])
def test_the_others_say_of_a_member_that_stands_still_that_it_says_nothing(kind: str) -> None:
    line = "rota.members: does not fit: node-2 (10.0.0.2:46651) accepts connections and says nothing: its process is"
    assert not unexplained(line, "node-1", {(kind, "node-2"): 1})
    assert unexplained(line, "node-2", {(kind, "node-2"): 1})
    assert unexplained(line, "node-1", {(kind, "node-3"): 1})


@pytest.mark.parametrize("error", ["'owner'", "KeyError('owner')", "list index out of range"])
def test_damage_does_not_explain_every_error(error: str) -> None:
    assert unexplained(f"rota.http: answering GET /v1/tasks failed: {error}", "node-2", DAMAGED)


def struck(kind: str, at_s: float) -> Struck:
    return Struck(1, kind, kind, ("node-2",), at_s)


@pytest.mark.parametrize(
    ("faults", "code", "well"),
    [
        ([struck("damaged files", 10.0)], 1, True),
        ([struck("full disk", 10.0)], 1, True),
        ([struck("full disk", 10.0)], -11, False),
        ([struck("full disk", 30.0)], 1, False),
        ([struck("kill -9 one", 10.0)], 1, False),
        ([], 1, False),
    ],
)
def test_a_node_ends_by_itself_only_because_of_what_struck_it(faults: list[Struck], code: int, well: bool) -> None:
    found = unasked([Ended("node-2", 20.0, code)], faults)
    assert found == ([] if well else [f"node-2 has ended by itself, with {code}"])
    assert unasked([Ended("node-1", 20.0, code)], faults)


def test_the_faults_that_explain_something_are_faults_that_there_are() -> None:
    deck = Deck(1, ("spaces", "clocks", "small disk"))
    names = tuple(f"node-{number}" for number in range(1, 6))
    kinds = {each.fault.kind for number in range(len(CARDS)) for each in deck.deal(number, names, "node-1")}
    assert kinds >= asking.SAID_OF.keys() | asking.ENDS_OF


def test_a_hung_shared_disk_explains_a_blocked_raft_thread_on_any_node() -> None:
    line = ["2026-11-21 10:47:35,000 WARNING rota.raft_watchdog: Raft thread resumed after 2.2 s"]
    assert members.alarms("node-1.log", line, patterns("node-1", {}))[1]
    assert not members.alarms("node-1.log", line, patterns("node-1", {}, stalled=True))[1]
    later = {(HUNG, "node-1"): 100}
    assert not members.alarms("node-1.log", line, patterns("node-1", later, stalled=True))[1], "before that fault, too"


def test_the_others_may_say_of_a_stopped_node_that_it_is_silent() -> None:
    said = "accepts connections and says nothing: its process is slow to start or stands still"
    line = [f"2026-11-24 15:06:45,367 WARNING rota.members: does not fit: node-1 (127.0.0.1:46517) {said}"]
    stopped = {("SIGSTOP 10 s", "node-1"): 3}
    assert not members.alarms("node-2.log", line, patterns("node-2", stopped))[1]
    assert members.alarms("node-1.log", line, patterns("node-1", stopped))[1], "it does not call itself"
    assert members.alarms("node-2.log", line, patterns("node-2", {("SIGSTOP 10 s", "node-3"): 3}))[1]
    assert members.alarms("node-2.log", line, patterns("node-2", {("kill -9 one", "node-1"): 3}))[1]
