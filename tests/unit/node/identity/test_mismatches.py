"""Nodes that do not fit: shown while they are met, logged once, and bounded where anybody can claim them."""

import logging

import pytest

from node.identity.mismatches import AGAIN_S, CLAIMS_MAX, KEPT_S, LASTING_S, Mismatch, MismatchCode, Mismatches

BUILD = Mismatch("node-2", "10.0.0.2:7101", "build", version="0.3.0")


class Board:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.mismatches = Mismatches("node-1", "0.2.0", lambda: self.now_s)

    def codes(self) -> list[tuple[str, str]]:
        return [(one.member, one.code) for one in self.mismatches.now()]


@pytest.mark.parametrize(
    ("mismatch", "words"),
    [
        (
            BUILD,
            "node-2 (10.0.0.2:7101) runs another build, 0.3.0, which this one, 0.2.0, does not understand: stop all",
        ),
        (Mismatch("", "10.0.0.2", "build", claimed=True), "a caller at 10.0.0.2 runs an earlier build which this one"),
        (
            Mismatch("node-2", "h:1", "mixed", version="0.3.0"),
            "node-2 (h:1) runs 0.3.0, and node-1 runs 0.2.0: stop all",
        ),
        (Mismatch("node-2", "h:1", "cluster", other="c-2"), "node-2 (h:1) belongs to cluster c-2, and node-1 does not"),
        (
            Mismatch("node-2", "h:1", "mistaken", other="node-3"),
            "node-3 answers at the address of node-2 (h:1): correct",
        ),
        (Mismatch("node-2", "h:1", "silent"), "node-2 (h:1) accepts connections and says nothing"),
        (Mismatch("node-2", "h:1", "no-member"), "the process at the Raft address of node-2 (h:1) does not speak as"),
    ],
    ids=lambda value: value.code if isinstance(value, Mismatch) else "",
)
def test_a_mismatch_says_what_is_wrong_and_what_to_do(mismatch: Mismatch, words: str) -> None:
    assert mismatch.sentence("node-1", "0.2.0").startswith(words)


def test_a_mismatch_is_shown_while_it_is_met_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    board = Board()
    for _ in range(30):
        board.mismatches.note(BUILD)
        board.now_s += KEPT_S / 2
    assert board.codes() == [("node-2", "build")]
    assert len(caplog.records) == 1
    board.now_s += KEPT_S
    assert board.codes() == []
    board.mismatches.note(BUILD)
    assert len(caplog.records) == 2
    for _ in range(int(AGAIN_S / KEPT_S * 2) + 2):
        board.now_s += KEPT_S / 2
        board.mismatches.note(BUILD)
    assert len(caplog.records) == 3


def test_a_member_that_is_connected_fits_again_and_one_of_another_build_is_shown_until_it_is_gone() -> None:
    board = Board()
    board.mismatches.note(BUILD)
    board.mismatches.clear("node-2", "mixed")
    assert board.codes() == [("node-2", "build")]
    board.mismatches.note(Mismatch("node-2", "10.0.0.2:7101", "mixed", version="0.3.0"))
    board.now_s += 100 * KEPT_S
    assert board.codes() == [("node-2", "mixed")]
    board.mismatches.clear("node-2")
    assert board.codes() == []


@pytest.mark.parametrize("code", ["silent", "no-member"])
def test_what_a_start_or_an_end_looks_like_for_a_moment_is_told_when_it_lasts(
    code: MismatchCode, caplog: pytest.LogCaptureFixture
) -> None:
    board = Board()
    for _ in range(4):
        board.mismatches.note(Mismatch("node-2", "h:1", code))
        board.now_s += LASTING_S / 4
    assert (board.codes(), caplog.records) == ([], [])
    board.mismatches.note(Mismatch("node-2", "h:1", code))
    assert (board.codes(), len(caplog.records)) == ([("node-2", code)], 1)


def test_claims_are_few_and_displace_no_member(caplog: pytest.LogCaptureFixture) -> None:
    board = Board()
    board.mismatches.note(BUILD)
    with caplog.at_level(logging.ERROR):
        for number in range(10 * CLAIMS_MAX):
            board.mismatches.note(Mismatch(f"node-{number}", "6.6.6.6", "secret", claimed=True))
    found = board.mismatches.now()
    assert found[0] == BUILD
    assert [one.member for one in found[1:]] == sorted(
        f"node-{number}" for number in range(9 * CLAIMS_MAX, 10 * CLAIMS_MAX)
    )
    board.mismatches.note(Mismatch("node-2", "10.0.0.2", "build", claimed=True, version="0.3.0"))
    assert [one.claimed for one in board.mismatches.now() if one.member == "node-2"] == [False], "it is known already"
