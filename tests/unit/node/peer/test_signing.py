"""Signatures between members: each is valid once, at one member, for a limited time."""

from dataclasses import replace

import pytest

from node.peer.signing import (
    ANY_MEMBER,
    FORM,
    NONCES_MAX,
    PERIOD_S,
    PeerRequest,
    SignatureRejected,
    SignatureVerifier,
    digest,
    is_of_this_form,
    new_request,
    response_mac,
    signing_key,
)

KEY = signing_key("secret")
PATH = "/peer/log?run_id=r&attempt=1"


def _asked(
    receiver: SignatureVerifier, now_s: float = 0, target: str = "b", path: str = PATH, body: bytes = b"x"
) -> PeerRequest:
    return new_request("POST", path, body, "a", target, "c-1", receiver.challenge(now_s))


def _check(
    receiver: SignatureVerifier, question: PeerRequest, now_s: float = 0, key: bytes = KEY, *, joining: bool = False
) -> None:
    receiver.check(question.header(key), question.method, question.path, question.cluster, now_s, joining=joining)


def test_a_signed_request_is_accepted_once() -> None:
    receiver = SignatureVerifier(KEY, "b")
    question = _asked(receiver)
    assert receiver.check(question.header(KEY), "POST", PATH, "c-1", 0, joining=False) == question
    with pytest.raises(SignatureRejected, match="received before"):
        _check(receiver, question)
    _check(receiver, replace(question, nonce="0" * 32))


@pytest.mark.parametrize("change", ["method", "path", "cluster"])
def test_the_signature_covers_what_is_not_in_the_header(change: str) -> None:
    receiver = SignatureVerifier(KEY, "b")
    question = _asked(receiver)
    there = {"method": question.method, "path": question.path, "cluster": question.cluster, change: "other"}
    with pytest.raises(SignatureRejected, match="signature"):
        receiver.check(question.header(KEY), there["method"], there["path"], there["cluster"], 0, joining=False)


@pytest.mark.parametrize("part", range(1, 7))
def test_the_signature_covers_every_part_of_the_header(part: int) -> None:
    receiver = SignatureVerifier(KEY, "b")
    parts = _asked(receiver).header(KEY).removeprefix("Rota ").split(";")
    parts[part] = parts[part][:-1] + ("1" if parts[part][-1] == "0" else "0")
    with pytest.raises(SignatureRejected, match="signature"):
        receiver.check("Rota " + ";".join(parts), "POST", PATH, "c-1", 0, joining=False)


def test_another_member_rejects_it_even_with_its_own_challenge() -> None:
    receiver, other = SignatureVerifier(KEY, "b"), SignatureVerifier(KEY, "c")
    with pytest.raises(SignatureRejected, match="signed for b"):
        _check(other, _asked(receiver))
    with pytest.raises(SignatureRejected, match="signed for b"):
        _check(other, replace(_asked(receiver), challenge=other.challenge(0)))


def test_the_same_member_rejects_it_after_a_restart() -> None:
    with pytest.raises(SignatureRejected, match="challenge"):
        _check(SignatureVerifier(KEY, "b"), _asked(SignatureVerifier(KEY, "b")))


def test_another_secret_is_named_as_the_reason() -> None:
    receiver = SignatureVerifier(KEY, "b")
    with pytest.raises(SignatureRejected, match="ROTA_SECRET"):
        _check(receiver, _asked(receiver), key=signing_key("other"))
    for header in (None, "", "Bearer x", "Rota a;b;c", "Rota \udcff;b"):
        with pytest.raises(SignatureRejected, match="only members"):
            receiver.check(header, "GET", PATH, "", 0, joining=True)


def test_a_challenge_is_valid_for_two_periods_whose_nonces_are_remembered() -> None:
    receiver = SignatureVerifier(KEY, "b")
    question = _asked(receiver)
    _check(receiver, question)
    later = replace(question, nonce="1" * 32)
    _check(receiver, later, PERIOD_S)
    for used in (question, later):
        with pytest.raises(SignatureRejected, match="received before"):
            _check(receiver, used, PERIOD_S)
    with pytest.raises(SignatureRejected, match="challenge"):
        _check(receiver, replace(question, nonce="2" * 32), 2 * PERIOD_S)
    _check(receiver, _asked(receiver, 9 * PERIOD_S), 9 * PERIOD_S)


def test_a_request_without_a_target_is_accepted_for_joining_only() -> None:
    receiver = SignatureVerifier(KEY, "b")
    _check(receiver, _asked(receiver, target=ANY_MEMBER), joining=True)
    with pytest.raises(SignatureRejected, match="join request"):
        _check(receiver, _asked(receiver, target=ANY_MEMBER))


def test_the_number_of_remembered_nonces_is_bounded() -> None:
    assert NONCES_MAX >= 1000
    receiver = SignatureVerifier(KEY, "b", nonces_max=3)
    for _ in range(3):
        _check(receiver, _asked(receiver))
    with pytest.raises(SignatureRejected, match="too many"):
        _check(receiver, _asked(receiver))
    _check(receiver, _asked(receiver, PERIOD_S), PERIOD_S)


def test_a_response_answers_one_request() -> None:
    receiver = SignatureVerifier(KEY, "b")
    one, other = (_asked(receiver).mac(KEY) for _ in range(2))
    signed = {
        response_mac(KEY, one, 200, b""),
        response_mac(KEY, one, 200, None),
        response_mac(KEY, one, 200, b"x"),
        response_mac(KEY, one, 404, b"x"),
        response_mac(KEY, other, 200, b"x"),
        response_mac(signing_key("other"), one, 200, b"x"),
    }
    assert len(signed) == 6


def test_the_key_is_derived_from_the_secret() -> None:
    assert signing_key("secret") == KEY != signing_key("secret2")
    assert b"secret" not in KEY
    assert digest(b"") != digest(b"x")


@pytest.mark.parametrize("form", ["", "2;", "4;"])
def test_a_sender_of_another_build_is_told_so_and_not_that_its_secret_differs(form: str) -> None:
    receiver = SignatureVerifier(KEY, "b")
    header = _asked(receiver).header(KEY).replace(f"Rota {FORM};", f"Rota {form}")
    with pytest.raises(SignatureRejected, match="runs another build"):
        receiver.check(header, "POST", PATH, "c-1", 0, joining=False)


def test_a_challenge_says_which_form_its_member_signs_in() -> None:
    issued = SignatureVerifier(KEY, "b").challenge(3 * PERIOD_S)
    assert is_of_this_form(issued)
    assert not is_of_this_form(issued.removeprefix(f"{FORM}-")), "as builds before form 3 issue it"
    assert not is_of_this_form(issued.replace(f"{FORM}-", "4-", 1))
    assert not is_of_this_form("")
