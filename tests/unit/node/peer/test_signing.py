"""What is signed between members: good once, at one member, for a while."""

from dataclasses import replace

import pytest

from node.peer.signing import (
    ANY_MEMBER,
    NONCES_MAX,
    PERIOD_S,
    Question,
    Receiver,
    Unsigned,
    answer_mac,
    asked,
    digest,
    member_key,
)

KEY = member_key("secret")
PATH = "/peer/log?run_id=r&attempt=1"


def _asked(receiver: Receiver, now_s: float = 0, target: str = "b", path: str = PATH, body: bytes = b"x") -> Question:
    return asked("POST", path, body, "a", target, "c-1", receiver.challenge(now_s))


def _check(
    receiver: Receiver, question: Question, now_s: float = 0, key: bytes = KEY, *, joining: bool = False
) -> None:
    receiver.check(question.header(key), question.method, question.path, question.cluster, now_s, joining=joining)


def test_what_is_signed_for_a_member_is_taken_once() -> None:
    receiver = Receiver(KEY, "b")
    question = _asked(receiver)
    assert receiver.check(question.header(KEY), "POST", PATH, "c-1", 0, joining=False) == question
    with pytest.raises(Unsigned, match="made before"):
        _check(receiver, question)
    _check(receiver, replace(question, nonce="0" * 32))


@pytest.mark.parametrize("change", ["method", "path", "cluster"])
def test_what_is_not_in_the_header_is_signed_too(change: str) -> None:
    receiver = Receiver(KEY, "b")
    question = _asked(receiver)
    there = {"method": question.method, "path": question.path, "cluster": question.cluster, change: "other"}
    with pytest.raises(Unsigned, match="signature"):
        receiver.check(question.header(KEY), there["method"], there["path"], there["cluster"], 0, joining=False)


@pytest.mark.parametrize("part", range(6))
def test_no_part_of_the_header_can_be_changed(part: int) -> None:
    receiver = Receiver(KEY, "b")
    parts = _asked(receiver).header(KEY).removeprefix("Rota ").split(";")
    parts[part] = parts[part][:-1] + ("1" if parts[part][-1] == "0" else "0")
    with pytest.raises(Unsigned, match="signature"):
        receiver.check("Rota " + ";".join(parts), "POST", PATH, "c-1", 0, joining=False)


def test_another_member_does_not_take_it_even_with_that_ones_challenge() -> None:
    receiver, other = Receiver(KEY, "b"), Receiver(KEY, "c")
    with pytest.raises(Unsigned, match="signed for b"):
        _check(other, _asked(receiver))
    with pytest.raises(Unsigned, match="signed for b"):
        _check(other, replace(_asked(receiver), challenge=other.challenge(0)))


def test_another_start_of_the_same_member_does_not_take_it() -> None:
    with pytest.raises(Unsigned, match="challenge"):
        _check(Receiver(KEY, "b"), _asked(Receiver(KEY, "b")))


def test_another_secret_is_told() -> None:
    receiver = Receiver(KEY, "b")
    with pytest.raises(Unsigned, match="ROTA_SECRET"):
        _check(receiver, _asked(receiver), key=member_key("other"))
    for header in (None, "", "Bearer x", "Rota a;b;c", "Rota \udcff;b"):
        with pytest.raises(Unsigned, match="members only"):
            receiver.check(header, "GET", PATH, "", 0, joining=True)


def test_a_challenge_lasts_for_two_periods_and_what_was_used_in_them_is_remembered() -> None:
    receiver = Receiver(KEY, "b")
    question = _asked(receiver)
    _check(receiver, question)
    later = replace(question, nonce="1" * 32)
    _check(receiver, later, PERIOD_S)
    for used in (question, later):
        with pytest.raises(Unsigned, match="made before"):
            _check(receiver, used, PERIOD_S)
    with pytest.raises(Unsigned, match="challenge"):
        _check(receiver, replace(question, nonce="2" * 32), 2 * PERIOD_S)
    _check(receiver, _asked(receiver, 9 * PERIOD_S), 9 * PERIOD_S)


def test_a_newcomer_knows_no_target_and_may_ask_to_join_only() -> None:
    receiver = Receiver(KEY, "b")
    _check(receiver, _asked(receiver, target=ANY_MEMBER), joining=True)
    with pytest.raises(Unsigned, match="newcomer"):
        _check(receiver, _asked(receiver, target=ANY_MEMBER))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert NONCES_MAX >= 1000
    monkeypatch.setattr("node.peer.signing.NONCES_MAX", 3)
    receiver = Receiver(KEY, "b")
    for _ in range(3):
        _check(receiver, _asked(receiver))
    with pytest.raises(Unsigned, match="too many"):
        _check(receiver, _asked(receiver))
    _check(receiver, _asked(receiver, PERIOD_S), PERIOD_S)


def test_an_answer_is_to_one_question() -> None:
    receiver = Receiver(KEY, "b")
    one, other = (_asked(receiver).mac(KEY) for _ in range(2))
    signed = {
        answer_mac(KEY, one, 200, b""),
        answer_mac(KEY, one, 200, None),
        answer_mac(KEY, one, 200, b"x"),
        answer_mac(KEY, one, 404, b"x"),
        answer_mac(KEY, other, 200, b"x"),
        answer_mac(member_key("other"), one, 200, b"x"),
    }
    assert len(signed) == 6


def test_the_key_is_not_the_secret_and_hangs_on_it() -> None:
    assert member_key("secret") == KEY != member_key("secret2")
    assert b"secret" not in KEY
    assert digest(b"") != digest(b"x")
