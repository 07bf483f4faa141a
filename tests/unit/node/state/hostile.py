"""Strategies: entries that might be honest, entries that certainly are not, and bytes in between."""

import dataclasses
from typing import Any

from hypothesis import strategies as st

from node.state.entries import CODES, Proposal, ProposalId, Seed
from node.state.places import Places
from node.state.registry import Put
from node.state.saved import Kept
from node.state.value import RULES
from tests.unit.node.state.given import NOW_US, hook, packed

NAMES = st.sampled_from(["a", "b", "c", "t", "u", "", "x/y", "\x00", "é" * 300])

WRONG = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**400, -(10**40), NOW_US]),
    st.sampled_from([float("nan"), float("inf"), -1.0, 0.5]),
    st.sampled_from(
        ["", "up", "schedule", "\udc80", "x" * 70_000, b"", b"\xc1", bytes(70_000), object(), {1, 2}, print]
    ),
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3) | st.binary(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.tuples(inner, inner)
            | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        ),
        max_leaves=6,
    ),
    st.just([[[[]] * 2] * 2] * 2),
    st.builds(lambda depth: _nested(depth), st.sampled_from([31, 33, 600, 5000])),
)
"""Values that belong in no field, or in few."""

SPECS = st.sampled_from(
    [
        packed("t", schedule={"every_s": 1}),
        packed("t", schedule={"every_s": 1}, overlap="allow", sticky=True),
        packed("u", schedule={"continuous": True}),
        packed("u", overlap="queue", failover={"max": 0}),
        packed("t", schedule={"every_s": 1}, deadlines={"start_within_s": 1, "finish_within_s": 1}),
        b"",
        b"\xc1",
        b"\x80",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 900 + b"\xc0",
    ]
)

TIMES = st.sampled_from([0, NOW_US - 1, NOW_US, NOW_US + 1_000_000, 253_402_300_799_999_999, 253_370_764_800_000_000])

PACKABLE = st.none() | st.booleans() | st.integers(-1, 2**64 - 1) | st.floats() | st.text(max_size=2)

_BY_FIELD: dict[str, st.SearchStrategy[Any]] = {
    "members": st.lists(st.builds(Seed, NAMES, NAMES, st.integers(0, 70_000), st.just(1)), max_size=3).map(tuple),
    "seed": st.builds(Seed, NAMES, NAMES, st.integers(0, 70_000), st.just(1)),
    "puts": st.lists(st.builds(Put, SPECS, st.none() | st.integers(0, 3)), max_size=3).map(tuple),
    "tasks": st.lists(
        st.builds(Kept, SPECS, st.integers(0, 3), st.integers(0, 2), TIMES, TIMES, TIMES, st.booleans()), max_size=3
    ).map(tuple),
    "settings": st.dictionaries(
        st.sampled_from(["lease_s", "window_s", "balance_slack_milli", "x"]), PACKABLE, max_size=2
    ),
    "labels": st.lists(st.tuples(NAMES, NAMES), max_size=3).map(tuple),
    "kinds": st.lists(NAMES, max_size=3).map(tuple),
    "places": st.builds(Places, st.integers(-1, 20_000)),
    "params": st.none() | st.dictionaries(NAMES, PACKABLE, max_size=2),
    "action": st.sampled_from(["", "", "preview"]),
    "args": st.none() | st.dictionaries(NAMES, PACKABLE, max_size=2),
    "result": st.none() | st.dictionaries(NAMES, PACKABLE, max_size=2),
    "figures": st.dictionaries(NAMES, PACKABLE, max_size=2),
    "through": st.integers(0, 3),
    "channel": st.sampled_from(["ops", "daily", ""]),
    "run_id": st.none() | st.sampled_from(["t~20241004T000001.000000Z", "x", ""]),
    "reason": st.sampled_from(["silent", "gone", "stopped", "new", "bored"]),
    "end": st.sampled_from(
        "succeeded failed away cancelled timed_out not_started handed_over accepted given_back bored".split()
    ),
    "state": st.sampled_from(["skipped", "missed", "succeeded"]),
    "deadline": st.sampled_from(["start_within", "finish_within", "success_every", "bored"]),
    "rules": st.integers(0, RULES + 1),
    "data": st.binary(max_size=5) | st.just(bytes(70_000)),
    "packed": st.sampled_from(
        [hook().pack(), hook(digest={"at": "07:00"}).pack(), b"", b"\xc1", b"\x91" * 900 + b"\xc0"]
    ),
    "keys": st.lists(st.sampled_from(["1.0", "2.0", ""]), max_size=3).map(tuple),
}


def _nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"x": value}
    return value


def _field(cls: type[Any], name: str) -> st.SearchStrategy[Any]:
    if name == "fire_at_us":
        return TIMES | st.lists(TIMES, max_size=4).map(tuple) | st.none()
    if name.endswith("_us"):
        return TIMES
    if name in ("on", "retry"):
        return st.booleans()
    if name in ("incarnation", "term", "token", "raft_port", "http_port", "heartbeat_port", "capacity", "if_version"):
        return st.integers(0, 3)
    if name in ("beside", "orders", "dropped", "dropped_successes"):
        return st.integers(0, 3)
    return _BY_FIELD.get(name, NAMES)


def entries(wrong: bool) -> st.SearchStrategy[Any]:
    """Entries of every kind: fields that might be right, or (`wrong`) any that are not."""

    def of(cls: type[Any]) -> st.SearchStrategy[Any]:
        fields = {one.name: _field(cls, one.name) for one in dataclasses.fields(cls)}
        return st.builds(cls, **{name: WRONG | right for name, right in fields.items()} if wrong else fields)

    return st.one_of([of(cls) for cls in CODES.values()])


def proposals(wrong: bool) -> st.SearchStrategy[Any]:
    """Proposals with such entries, their ids small so that they meet again, or as wrong as the rest."""
    names: st.SearchStrategy[Any] = st.sampled_from(["a", "b", "stranger"])
    counts: st.SearchStrategy[Any] = st.integers(1, 5)
    ids = st.builds(ProposalId, names, counts, st.integers(1, 1000))
    if not wrong:
        return st.builds(Proposal, ids, entries(wrong=False))
    bad_ids = st.builds(ProposalId, names | WRONG, counts | WRONG, counts | WRONG)
    return st.builds(Proposal, st.one_of(ids, ids, bad_ids, WRONG), entries(wrong=True) | WRONG) | WRONG
