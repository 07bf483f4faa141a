"""Sessions of browsers: which cookies are accepted, and which forms are of which session."""

import pytest

from node.http.door.session import (
    ENDS_S,
    RENEWED_S,
    SESSION_S,
    BrowserSession,
    SessionRejected,
    SessionSigner,
    cookie_name,
)

NOW_S = 1_795_000_000
SIGNER = SessionSigner("a secret", {"operator": "t0ken", "reader": "r3ad"})
OPERATOR = BrowserSession("operator", NOW_S + SESSION_S, "0" * 32)
READER = BrowserSession("reader", NOW_S + SESSION_S, "1" * 32)
GUEST = BrowserSession("guest", NOW_S + SESSION_S, "2" * 32)


@pytest.mark.parametrize("session", [OPERATOR, READER, GUEST])
def test_every_member_with_the_secret_and_the_tokens_accepts_a_session(session: BrowserSession) -> None:
    other = SessionSigner("a secret", {"operator": "t0ken", "reader": "r3ad"})
    assert other.read(SIGNER.cookie(session, "c-1"), "c-1", NOW_S) == session


def test_the_cookie_holds_neither_the_token_nor_what_is_made_of_it_alone() -> None:
    role, expires, _, session_id, mac = SIGNER.cookie(OPERATOR, "c-1").split(".")
    assert (role, expires, session_id) == ("operator", str(OPERATOR.expires_s), OPERATOR.id)
    assert mac != SIGNER.cookie(OPERATOR, "c-2").split(".")[4]


@pytest.mark.parametrize(
    ("cookie", "cluster", "now_s", "why"),
    [
        (SIGNER.cookie(OPERATOR, "c-1"), "c-2", NOW_S, "another cluster"),
        (SIGNER.cookie(OPERATOR, "c-1"), "c-1", NOW_S + SESSION_S, "expired"),
        (SIGNER.cookie(READER, "c-1").replace("reader", "operator", 1), "c-1", NOW_S, "another cluster"),
        (SIGNER.cookie(GUEST, "c-1").replace("guest", "reader", 1), "c-1", NOW_S, "another cluster"),
        (SIGNER.cookie(READER, "c-1").replace(str(READER.expires_s), str(2 * NOW_S)), "c-1", NOW_S, "another cluster"),
        (SIGNER.cookie(OPERATOR, "c-1")[:-1], "c-1", NOW_S, "cannot be read"),
        ("", "c-1", NOW_S, "cannot be read"),
        ("operator.1.\udcff", "c-1", NOW_S, "cannot be read"),
    ],
)
def test_another_cookie_is_refused(cookie: str, cluster: str, now_s: float, why: str) -> None:
    with pytest.raises(SessionRejected, match=why):
        SIGNER.read(cookie, cluster, now_s)


def test_a_token_that_is_changed_or_withdrawn_ends_its_sessions_and_no_others() -> None:
    cookies = {session.role: SIGNER.cookie(session, "c-1") for session in (OPERATOR, READER, GUEST)}
    changed = SessionSigner("a secret", {"operator": "another", "reader": "r3ad"})
    with pytest.raises(SessionRejected, match="token was changed"):
        changed.read(cookies["operator"], "c-1", NOW_S)
    assert changed.read(cookies["reader"], "c-1", NOW_S) == READER
    with pytest.raises(SessionRejected, match="withdrawn"):
        SessionSigner("a secret", {"operator": "t0ken"}).read(cookies["reader"], "c-1", NOW_S)
    with pytest.raises(SessionRejected, match="another cluster"):
        SessionSigner("another secret", {"operator": "t0ken"}).read(cookies["operator"], "c-1", NOW_S)


def test_a_form_is_of_one_session() -> None:
    csrf = SIGNER.csrf(OPERATOR)
    assert SIGNER.csrf_matches(OPERATOR, csrf)
    for shown in ("", csrf[:-1], SIGNER.csrf(READER), SessionSigner("other", {}).csrf(OPERATOR), "\udcff"):
        assert not SIGNER.csrf_matches(OPERATOR, shown)


def test_each_cluster_has_a_cookie_of_its_own() -> None:
    assert len({cookie_name(cluster) for cluster in ("", "c-1", "c-2")}) == 3


def test_a_session_that_is_used_lasts_longer_and_ends_in_the_end() -> None:
    session = BrowserSession("operator", NOW_S + SESSION_S, "0" * 32, NOW_S + ENDS_S)
    assert session.renewed(NOW_S + RENEWED_S - 1) is None, "not with each request"
    renewed = session.renewed(NOW_S + RENEWED_S)
    assert renewed == BrowserSession("operator", NOW_S + RENEWED_S + SESSION_S, "0" * 32, NOW_S + ENDS_S)
    assert renewed is not None
    assert SIGNER.csrf(renewed) == SIGNER.csrf(session), "forms that are open stay good"
    now_s, used = NOW_S, session
    for _ in range(1000):
        now_s += 6 * 3600
        if now_s >= used.expires_s:
            break
        used = used.renewed(now_s) or used
    assert used.expires_s == NOW_S + ENDS_S
    assert BrowserSession("guest", NOW_S, "0" * 32, NOW_S + ENDS_S).renewed(NOW_S) is None


def test_nobody_puts_off_the_end_of_a_session() -> None:
    role, expires, ends, session_id, mac = SIGNER.cookie(OPERATOR, "c-1").split(".")
    with pytest.raises(SessionRejected):
        SIGNER.read(".".join((role, expires, str(int(ends) + ENDS_S), session_id, mac)), "c-1", NOW_S)
