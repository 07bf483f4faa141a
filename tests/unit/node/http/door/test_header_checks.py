"""Tokens, and the host names that a node accepts."""

import base64
import json

import pytest

from node.http.door.header_checks import check_host, check_origin, check_target, shown_token, tokens_equal
from node.http.door.problems import Problem


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8101",
        "localhost:8101",
        "LOCALHOST",
        "[::1]:8101",
        "192.168.1.5",
        "node-2.lan:8101",
        "Node-2.LAN.",
        "rota.localhost:1",
    ],
)
def test_ip_addresses_and_known_host_names_are_accepted(host: str) -> None:
    check_host(host, {"node-2.lan"})


@pytest.mark.parametrize(
    "host", ["", "evil.example:8101", "127.0.0.1.evil.example", "localhost.evil.example", "[evil]:1"]
)
def test_an_unknown_host_name_is_refused(host: str) -> None:
    with pytest.raises(Problem) as caught:
        check_host(host, {"node-2.lan"})
    assert caught.value.status == 421


def test_a_path_that_is_not_ascii_is_refused() -> None:
    check_target("/v1/runs?task=%ff&node=%C3%A9")
    for target in ("/v1/runs/\udcff", "/v1/runs?task=é"):
        with pytest.raises(Problem, match="percent-encode") as caught:
            check_target(target)
        body = caught.value.response().body
        assert isinstance(body, bytes)
        assert json.loads(body.decode())["status"] == 400


def test_a_token_is_read_from_a_bearer_header_and_for_pages_from_a_password() -> None:
    assert shown_token("Bearer t0ken") == shown_token("bearer  t0ken ") == "t0ken"
    assert shown_token(None) is shown_token("t0ken") is shown_token("Bearer ") is None
    password = "Basic " + base64.b64encode(b"anyone:t0ken").decode()
    assert shown_token(password) is None
    assert shown_token(password, basic=True) == "t0ken"
    assert shown_token("Basic %%%", basic=True) is None


def test_undecodable_bytes_are_a_wrong_token() -> None:
    # As aiohttp decodes bytes that are not UTF-8.
    assert not tokens_equal("\udcff", "t0ken")
    assert tokens_equal("\udcff", "\udcff")
    assert shown_token("Basic \udcff", basic=True) is None
    assert shown_token("Basic ²", basic=True) is None


OURS = {"Host": "127.0.0.1:8101"}
FOREIGN = (
    {"Origin": "http://evil.example"},
    {"Origin": "http://127.0.0.1:3000", "Sec-Fetch-Site": "same-site"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "https://rota.example:3000", "Sec-Fetch-Site": "same-site"},
)


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_page_of_another_origin_neither_writes_nor_reads_with_what_the_browser_knows(headers: dict[str, str]) -> None:
    for reads, known in ((False, False), (False, True), (True, True)):
        for page in (False, True):
            with pytest.raises(Problem) as caught:
                check_origin(OURS | headers, {"rota.example"}, reads=reads, known=known, page=page)
            assert caught.value.kind == "foreign-page"
    # The browser does not let it read the response.
    check_origin(OURS | headers, set(), reads=True, known=False, page=False)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://127.0.0.1:8101", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "https://rota.example", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_our_own_page_and_what_is_no_browser_are_let_in(headers: dict[str, str]) -> None:
    for reads in (False, True):
        check_origin(OURS | headers, {"rota.example"}, reads=reads, known=True, page=True)


def test_a_link_on_another_site_leads_to_pages_and_nowhere_else() -> None:
    link = OURS | {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    check_origin(link, set(), reads=True, known=True, page=True)
    for reads, page in ((True, False), (False, True)):
        with pytest.raises(Problem):
            check_origin(link, set(), reads=reads, known=True, page=page)
