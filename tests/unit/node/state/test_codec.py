"""The packed forms: entries, snapshots, finished runs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.state import codec
from node.state.apply import apply
from node.state.attempts import Began, Cancel, Checkpoint, Finish, began
from node.state.awaiting import AwaitParents, SettleLate
from node.state.backfills import AdvanceBackfill, ChangeBackfill, StartBackfill
from node.state.blackouts import EndBlackout, SetBlackout
from node.state.calendars import SetCalendar
from node.state.claims import Claim
from node.state.codec import (
    PIECE_BYTES_MAX,
    BadEntry,
    DamagedSnapshot,
    from_pieces,
    pack_batch,
    pack_ended,
    snapshot_pieces,
    unpack_batch,
    unpack_ended,
)
from node.state.deadlines import Breached
from node.state.digest import MakeDigest
from node.state.entries import CODES, Entry, Proposal, ProposalId, Seed, applies
from node.state.fan_out import FanOut, MissRun
from node.state.joins import PassOn, SettleJoin
from node.state.members import AddMember, Drain, FoundCluster, MarkDown, Refound, RemoveMember, StandAside, TakeLead
from node.state.occurrences import Enqueue, SkipOccurrences, Start
from node.state.offers import Offer, TellPlaces
from node.state.places import Places
from node.state.registry import DeleteTask, Pause, Put, PutTasks
from node.state.restoring import RestoreTasks
from node.state.saved import Kept
from node.state.settings import ChangeSettings
from node.state.snapshot import assembled, records
from node.state.telling import DeleteChannel, PutChannel, Tell, Told
from node.state.value import RULES, State
from tests.unit.node.state.given import NOW_US, cluster, hook, joining, packed

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

ONE_OF_EACH: list[Entry] = [
    FoundCluster(1, "c", (Seed("a", "h", 1, 2),)),
    TakeLead(1, "a", 1),
    joining("a", labels=(("disk", "ssd"),)),
    AddMember(1, Seed("b", "h", 1, 2)),
    RemoveMember(1, "b"),
    Drain(1, "b", True),
    StandAside(1, "b", 1, "no room"),
    MarkDown(1, "b", 1, "silent", 2),
    ChangeSettings(1, {"lease_s": 2.5, "balance_slack_milli": None}),
    ChangeSettings(1, {"pools": {"dumps": 2, "old": None}}, "night", True),
    PutTasks(1, (Put(b"x"), Put(b"y", 3))),
    DeleteTask(1, "t", 2),
    Pause(1, "t", False),
    Start(1, "t", {"x": [1, None, {"y": "é"}]}, 2, "k"),
    Enqueue(1, "t", (1, 2)),
    SkipOccurrences(1, "t", "missed", (1, 2)),
    Claim(1, "t", 2, "a", 1, "t~1"),
    Began(1, "t~1", 1),
    Checkpoint(1, "t~1", 1, b"\x00\xff"),
    Finish(1, "t~1", 1, "failed", {"rows": 1.5}, "broke", retry=False),
    Cancel(1, "t~1", "why"),
    Breached(1, "t", "finish_within", 1),
    Refound(1, "d", "a"),
    RestoreTasks(1, 0, 5, 2, {"lease_s": 3.0}, (Kept(packed("t"), 2, 1, 1, 1, 1, requests=(("k", "t~1"),)),)),
    PutChannel(1, "ops", hook().pack()),
    DeleteChannel(1, "ops"),
    Tell(1, "ops", ("7.0", "7.1"), "a", 2),
    Told(1, "ops", 8, "failed", "it refused the message", 3),
    PassOn(1, 3),
    SettleJoin(1, "t", 2, 3),
    AwaitParents(1, "t", 2, (("a", 2), ("b", 0))),
    SettleLate(1, "t", 2),
    StartBackfill(1, "t", 1, 5, 3, 2, True, False, "operator"),
    AdvanceBackfill(1, 7, 2, 3, True),
    ChangeBackfill(1, 7, "paused", "why"),
    FanOut(1, "t", 2),
    MissRun(1, "t", "t~1@b"),
    SetCalendar(1, "closing", (738000, 738001), 738100),
    SetCalendar(1, "closing", (738000,), 0, "night", True),
    SetBlackout(1, "move", 2, 3, (("team", "bi"),)),
    EndBlackout(1, "move"),
    Offer(1, "t", 2, "a", "t~1"),
    TellPlaces(1, "a", 1, Places(8, (("etl", "SPARK"),), (("SPARK", 4),))),
    MakeDigest(1, "ops", 1, 2, 0, "nothing ran", {"total": {"ran": 0}}),
]


def lively() -> State:
    """Something of everything, with a checkpoint, a queue and results in a window."""
    history = cluster("a", "b", "c")
    history.put("t", schedule={"every_s": 1}, overlap="allow", sticky=True, group={"disk": "ssd"})
    history.put("u", schedule={"continuous": True})
    for second in range(1, 9):
        run = history.claim("t", NOW_US + second * 1_000_000, "ab"[second % 2])
        history.must(Checkpoint(NOW_US, run.run_id, run.token, bytes(65_536)))
    history.must(Start(NOW_US, "u", {"deep": [{"x": 1.5}]}, key="k"))
    history.must(Cancel(NOW_US, run.run_id))
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    history.put("e", schedule={"every_s": 1}, each=True)
    history.must(FanOut(NOW_US + 1_000_000, "e", NOW_US + 1_000_000))
    history.must(PutChannel(NOW_US, "ops", hook().pack()))
    history.must(MarkDown(NOW_US, "b", 1, "stopped", 0))
    history.must(Tell(NOW_US, "ops", (history.state.channels["ops"].notices[0].key,), "a", 1))
    history.do(Cancel(NOW_US, "nothing"))
    return history.state


LIVELY = lively()
PIECES = list(snapshot_pieces(LIVELY))


def test_one_of_each_entry_comes_back_as_it_was() -> None:
    assert {type(entry) for entry in ONE_OF_EACH} == set(CODES.values())
    proposals = [Proposal(ProposalId("a", 2**63, number), entry) for number, entry in enumerate(ONE_OF_EACH)]
    assert unpack_batch(pack_batch(proposals)) == proposals


def test_the_codes_in_the_log_stay_what_they_are() -> None:
    names = "FoundCluster TakeLead Join AddMember RemoveMember Drain MarkDown ChangeSettings PutTasks DeleteTask"
    names += " Pause Start Enqueue SkipOccurrences Claim Began Checkpoint Finish Cancel Refound RestoreTasks StandAside"
    names += " Breached"
    assert [CODES[code].__name__ for code in range(1, 24)] == names.split()
    assert [CODES[code].__name__ for code in range(25, 29)] == "PutChannel DeleteChannel Tell Told".split()


def test_a_packed_batch_is_what_it_was_in_version_1() -> None:
    data = pack_batch([Proposal(ProposalId("a", 1, 5), Began(7, "t~1", 3))])
    assert data.hex() == "9201" + "91" + "97" + "a161" + "01" + "05" + "10" + "07" + "a3747e31" + "03"


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_a_figure_that_json_has_no_word_for_becomes_null(wrong: float) -> None:
    sent = Proposal(ProposalId("a", 1, 1), Start(1, "t", {"figures": [wrong, 1.5]}))
    [read] = unpack_batch(pack_batch([sent]))
    assert read.entry == Start(1, "t", {"figures": [None, 1.5]})


@pytest.mark.parametrize("wrong", [2**64, {1, 2}, "\udc80", object()])
def test_what_cannot_be_packed_says_so(wrong: Any) -> None:
    with pytest.raises(BadEntry, match="cannot be packed"):
        pack_batch([Proposal(ProposalId("a", 1, 1), Start(1, "t", {"x": wrong}))])


@pytest.mark.parametrize("wrong", [b"", b"\xc1", msgpack.packb([2, []]), msgpack.packb([1, [["a", -1, 1, 1]]])])
def test_what_is_no_batch_is_named(wrong: bytes) -> None:
    with pytest.raises(BadEntry):
        unpack_batch(wrong)


def test_a_snapshot_comes_back_equal_from_small_pieces() -> None:
    assert len(PIECES) > 2
    assert max(map(len, PIECES)) <= PIECE_BYTES_MAX
    assert from_pieces(PIECES) == LIVELY
    assert from_pieces(iter(snapshot_pieces(State()))) == State()


def test_a_snapshot_without_forgotten_sessions_is_what_it_was_before_there_were_any() -> None:
    def counts(state: State) -> list[Any]:
        head: list[Any] = next(iter(records(state)))[1]
        return head

    assert len(counts(LIVELY)) == 5
    assert counts(replace(LIVELY, forgotten=7)) == [*counts(LIVELY), 7]
    assert from_pieces(snapshot_pieces(replace(LIVELY, forgotten=7))) == replace(LIVELY, forgotten=7)


def test_whatever_session_was_accepted_can_be_read_again() -> None:
    [proposal] = unpack_batch(pack_batch([Proposal(ProposalId("a", 2**64 - 1, 2**64 - 1), Start(1, "t"))]))
    state = apply(State(), proposal).state
    assert from_pieces(snapshot_pieces(state)) == state


def test_equal_states_give_equal_pieces() -> None:
    assert list(snapshot_pieces(from_pieces(PIECES))) == PIECES


def test_runs_share_their_task_s_packed_definition_again() -> None:
    state = from_pieces(PIECES)
    [run_id] = state.runs_of["u"]
    assert state.runs[run_id].spec_packed is state.tasks["u"].spec_packed


def test_a_definition_larger_than_a_piece_is_cut() -> None:
    history = cluster("a")
    history.put("t", params={"text": "x" * 900_000})
    assert from_pieces(snapshot_pieces(history.state)) == history.state


def test_no_record_of_a_snapshot_is_large_but_by_a_definition() -> None:
    """What is packed at once holds up every other thread, so what windows remember goes result by result."""
    history = cluster("a")
    for weight in range(1, 11):
        history.must(PutTasks(NOW_US, tuple(Put(packed(f"t-{number}", weight=weight)) for number in range(100))))
    assert history.state.windows["a"].weight > 1000
    assert max(len(msgpack.packb(record)) for record in records(history.state)) < 2_000
    assert from_pieces(snapshot_pieces(history.state)) == history.state


def test_a_window_with_its_results_in_one_record_is_read() -> None:
    """As it was written before."""
    told = [msgpack.unpackb(msgpack.packb(record)) for record in records(LIVELY)]
    windows: dict[str, list[Any]] = {}
    for kind, proposer, *rest in (record for record in told if record[0] in (4, 5)):
        if kind == 4:
            windows[proposer] = [4, proposer, *rest, []]
        else:
            windows[proposer][-1].append(rest)
    assert any(window[-1] for window in windows.values())
    assert assembled([*(record for record in told if record[0] not in (4, 5)), *windows.values()]) == LIVELY


@pytest.mark.parametrize(
    "damage",
    [
        lambda pieces: [],
        lambda pieces: pieces[:-1],
        lambda pieces: pieces[1:],
        lambda pieces: [*pieces, pieces[-1]],
        lambda pieces: [pieces[1], pieces[0], *pieces[2:]],
        lambda pieces: [pieces[0][:-1], *pieces[1:]],
        lambda pieces: [pieces[0][:5000] + b"?" + pieces[0][5001:], *pieces[1:]],
        lambda pieces: ["text"],
        lambda pieces: [None],
    ],
)
def test_a_damaged_snapshot_says_what_to_do(damage: Callable[[list[bytes]], list[Any]]) -> None:
    with pytest.raises(DamagedSnapshot, match="move its data folder out of the way"):
        from_pieces(damage(PIECES))


@QUICK
@given(st.data())
def test_a_hostile_snapshot_raises_nothing_else(data: st.DataObject) -> None:
    """Records put into sound pieces, so that neither digest nor order protects what reads them."""
    stream = [record for record in records(replace(LIVELY, runs=LIVELY.runs, windows=LIVELY.windows)) if record[0] != 3]
    stream = msgpack.unpackb(msgpack.packb(stream))
    place: Any = stream
    for _ in range(data.draw(st.integers(1, 4))):
        if isinstance(place, list) and place:
            parent, at = place, data.draw(st.integers(0, len(place) - 1))
            place = parent[at]
    parent[at] = data.draw(
        st.none() | st.integers(-1, 2**64 - 1) | st.text(max_size=2) | st.binary(max_size=2)
        | st.lists(st.integers(0, 5) | st.just([]), max_size=5)
    )  # fmt: skip
    body = b"".join(map(msgpack.packb, stream))
    try:
        state = from_pieces([codec._piece(0, body, last=True)])
    except DamagedSnapshot as error:
        assert "data folder" in str(error)
    else:
        assert from_pieces(snapshot_pieces(state)) == state


@QUICK
@given(st.lists(st.binary(max_size=50), max_size=3))
def test_bytes_are_no_snapshot(pieces: list[bytes]) -> None:
    with pytest.raises(DamagedSnapshot):
        from_pieces(pieces)


@pytest.mark.parametrize("stream", [[], [[1]], [[0]], ["x"], [[0, [], [], [], []]], [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]])
def test_records_of_no_state(stream: list[Any]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        assembled(stream)


def test_a_finished_run_comes_back_as_it_was() -> None:
    history = cluster("a")
    history.put("t", schedule={"every_s": 1})
    run = history.claim("t", NOW_US + 1_000_000)
    history.must(Finish(NOW_US, run.run_id, run.token, "succeeded", {"rows": 3, "urls": ["file:///x"]}))
    [ended] = history.ended
    assert unpack_ended(pack_ended(ended)) == ended
    for wrong in (
        b"",
        b"\xc1",
        pack_ended(ended)[:-1],
        msgpack.packb([2, []]),
        msgpack.packb([1, [1]]),
        msgpack.packb(7),
    ):
        with pytest.raises(DamagedSnapshot):
            unpack_ended(wrong)


def test_a_spec_that_was_accepted_is_read_where_its_time_zone_is_unknown() -> None:
    """Or members with different zone databases would come to different states."""
    elsewhere = msgpack.unpackb(packed("t", schedule={"cron": "0 3 * * *", "timezone": "UTC"}))
    elsewhere["schedule"]["timezone"] = "Mars/Olympus_Mons"
    history = cluster("a")
    history.must(PutTasks(NOW_US, (Put(msgpack.packb(elsewhere)),)))
    assert history.state.tasks["t"].spec.name == "t"


def test_a_code_is_given_once() -> None:
    with pytest.raises(ValueError, match="code 26 is that of DeleteChannel, so Began cannot have it"):
        applies(Began, code=26)(began)
