"""How many wrong tokens an address may show: its tries come back, others have theirs, and little is remembered."""

from node.http.door.authentication import BURST, EVERY_S, ORIGINS_MAX, WrongTokens


def test_an_address_has_some_tries_and_then_one_every_while() -> None:
    tokens = WrongTokens()
    assert [tokens.wrong("a", 0) for _ in range(BURST)] == [None] * BURST
    assert tokens.wrong("a", 0) == EVERY_S
    assert tokens.wrong("b", 0) is None
    assert [tokens.wrong("a", EVERY_S), tokens.wrong("a", EVERY_S)] == [None, EVERY_S]


def test_what_is_refused_does_not_put_off_the_next_try() -> None:
    tokens = WrongTokens()
    answers = [tokens.wrong("a", second / 1000) for second in range(60_000)]
    assert answers.count(None) == BURST + 60 / EVERY_S - 1
    assert [tokens.wrong("a", 60 + BURST * EVERY_S) for _ in range(BURST)] == [None] * BURST


def test_only_so_many_addresses_are_remembered() -> None:
    tokens = WrongTokens()
    for number in range(3 * ORIGINS_MAX):
        assert tokens.wrong(str(number), 0) is None
    assert len(tokens) == ORIGINS_MAX


def test_the_log_has_a_line_a_minute() -> None:
    tokens = WrongTokens()
    assert sum(tokens.is_news(second / 10) for second in range(1200)) == 2
