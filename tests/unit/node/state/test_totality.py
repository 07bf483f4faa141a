"""No bytes and no entry make `apply` raise (an exception would stop the log for good)."""

from dataclasses import replace
from typing import Any

import msgpack
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.state.apply import apply, apply_batch
from node.state.codec import VERSION, pack_batch, unpack_batch
from node.state.entries import CODES
from node.state.members import TakeLead
from node.state.occurrences import Enqueue, Start
from node.state.settings import ChangeSettings
from node.state.value import RULES, State
from tests.unit.node.state.given import NOW_US, cluster
from tests.unit.node.state.hostile import proposals

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def lively() -> State:
    """Members up and down, tasks of each sort, runs in each active state."""
    history = cluster("a", "b")
    history.put("t", schedule={"every_s": 1}, overlap="allow", sticky=True)
    history.put("u", schedule={"continuous": True})
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    history.must(ChangeSettings(NOW_US, {"pools": {"p": 1}}))
    for name in "vw":  # of these one has started, and one waits for its start
        history.put(name, schedule={"every_s": 1}, uses={"p": 1}, rate={"pool": "p", "per_min": 1})
        history.must(Enqueue(NOW_US + 1_000_000, name, (NOW_US + 1_000_000,)))
    [waits] = history.state.runs_of["v"]
    history.claim("v", NOW_US + 1_000_000, run_id=waits)
    for second in (1, 2):
        history.claim("t", NOW_US + second * 1_000_000, "ab"[second - 1])
    history.must(Start(NOW_US, "t"))
    return history.state


LIVELY = lively()


@QUICK
@given(st.binary(max_size=200))
def test_bytes(data: bytes) -> None:
    batch = apply_batch(LIVELY, data)
    assert batch.results == []
    assert batch.state == replace(LIVELY, index=LIVELY.index + 1)


@QUICK
@given(st.lists(proposals(wrong=False), max_size=2), st.data())
def test_bytes_that_were_a_batch_before_some_were_changed(sound: list[Any], data: st.DataObject) -> None:
    packed = bytearray(pack_batch(sound))
    for _ in range(3):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    batch = apply_batch(LIVELY, bytes(packed))
    assert batch.state.index == LIVELY.index + max(1, len(batch.results)) or not batch.results
    assert all(result.code != "fault" for _, result in batch.results)


@QUICK
@given(st.recursive(st.none() | st.integers(-1, 20) | st.text(max_size=2), lambda inner: st.lists(inner, max_size=6)))
def test_msgpack_of_another_shape(value: Any) -> None:
    batch = apply_batch(LIVELY, msgpack.packb([VERSION, [["a", 1, 1, 5, value], value]]))
    assert batch.state.index > LIVELY.index
    batch = apply_batch(LIVELY, msgpack.packb([VERSION, [["a", 2, 1, code, value] for code in range(25)]]))
    assert len(batch.results) == 25
    assert all(result.code != "fault" for _, result in batch.results)


@QUICK
@given(st.lists(proposals(wrong=True), min_size=1, max_size=3))
def test_hostile_entries(hostile: list[Any]) -> None:
    state = LIVELY
    for proposal in hostile:
        before = state
        applied = apply(state, proposal)
        state = applied.state
        assert state.index == before.index + 1
        assert applied.result.code != "fault", applied.result
        if not applied.result.ok:
            assert state == replace(before, index=state.index, windows=state.windows)


@QUICK
@given(st.lists(proposals(wrong=False), min_size=1, max_size=6))
def test_plausible_entries_are_applied_alike_one_by_one_and_together(plausible: list[Any]) -> None:
    one_by_one, ended = LIVELY, []
    for proposal in plausible:
        applied = apply(one_by_one, proposal)
        one_by_one = applied.state
        ended += [(one_by_one.index, one) for one in applied.ended]
        assert applied.result.code != "fault", applied.result
    batch = apply_batch(LIVELY, pack_batch(plausible))
    assert (batch.state, batch.ended) == (one_by_one, ended)


def test_an_entry_of_a_later_version_is_refused_counted_and_remembered() -> None:
    unknown = max(CODES) + 1
    data = msgpack.packb([VERSION, [["a", 9, 1, unknown, "new"], ["a", 9, 2, 2, NOW_US, "a", 7, "a new field"]]])
    batch = apply_batch(LIVELY, data)
    assert [result.code for _, result in batch.results] == ["invalid", "invalid"]
    assert batch.state == replace(LIVELY, index=LIVELY.index + 2, windows=batch.state.windows)
    assert [batch.state.windows["a"].results[n].code for n in (1, 2)] == ["invalid", "invalid"]


def test_an_entry_of_an_earlier_version_lacks_fields_that_have_a_default() -> None:
    [proposal] = unpack_batch(msgpack.packb([VERSION, [["a", 9, 1, 12, NOW_US, "t"]]]))
    assert proposal.entry == Start(NOW_US, "t")


def test_before_a_cluster_is_founded_nothing_else_is_accepted() -> None:
    batch = apply_batch(State(), msgpack.packb([VERSION, [["a", 1, 1, 2, NOW_US, "a", 1]]]))
    assert [result.code for _, result in batch.results] == ["not-founded"]
