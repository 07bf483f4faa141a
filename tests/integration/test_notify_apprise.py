"""A message by Apprise: mail to a real SMTP server, and what Apprise may not reach."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from node.duty.telling import Send
from node.notify.secrets_here import SenderSettings
from node.notify.sender import ChannelSender
from node.notify.teller import NotSent
from node.state.channel import Channel
from node.state.outbox import Notice, Permission
from tasks.access import Access, parse_hosts
from testkit.servers.mail_server import Mailbox, mail_server

pytestmark = [pytest.mark.integration, pytest.mark.more]


@pytest.fixture(scope="module")
def server() -> Iterator[Mailbox]:
    with mail_server() as made:
        yield made


@pytest.fixture
def mailbox(server: Mailbox) -> Mailbox:
    server.mails.clear()
    server.refuses = ""
    return server


TEXT = "nightly failed, after 3 attempts: no such table"


def send(secrets: Path, url: str, hosts: str = "*", text: str = TEXT) -> str:
    (secrets / "mail").write_text(url)
    settings = SenderSettings("node-1", Access("node-1", destination_hosts=parse_hosts(hosts)), secrets)
    channel = Channel.model_validate({"kind": "apprise", "url": {"secret": "mail"}})
    notice = Notice("17.0", "run_failed", "error", 1_795_240_500_000_000, text)
    message = Send("ops", Permission(5, "node-1", 1, ("17.0",)), channel, (notice,), 2)
    return asyncio.run(ChannelSender(settings, lambda: 0).send("c-1", message))


def mail_url(mailbox: Mailbox) -> str:
    return f"{mailbox.url}&from=rota@x.example&to=ops@x.example"


def test_a_mail_says_what_came_to_pass(mailbox: Mailbox, tmp_path: Path) -> None:
    assert send(tmp_path, mail_url(mailbox)) == "accepted"
    [mail] = mailbox.mails
    assert mail["Subject"] == f"Rota: {TEXT}"
    assert mail["To"] == "ops@x.example"
    body = mail.get_body(("plain", "html"))
    assert body is not None
    text = body.get_content()
    assert "2026-11-21T05:55:00Z" in text
    assert "2 older notices were dropped" in text
    assert "cluster c-1, channel ops" in text


def test_what_stands_in_an_error_is_shown_as_it_is(mailbox: Mailbox, tmp_path: Path) -> None:
    """An error is no page of HTML: nothing in it is fetched by whoever reads the mail, and lines stay apart."""
    send(tmp_path, mail_url(mailbox), text="it failed: <img src=http://x.example/seen> \x1b[31m")
    [mail] = mailbox.mails
    shown = [part.get_content() for part in mail.walk() if part.get_content_type() == "text/plain"]
    assert len(shown) == 1
    assert "  ERROR  it failed: <img src=http://x.example/seen> \\x1b[31m" in shown[0].splitlines()[0]
    assert [part for part in mail.walk() if part.get_content_type() == "text/html"] == []


def test_a_server_that_refuses_is_told_without_the_secret(mailbox: Mailbox, tmp_path: Path) -> None:
    mailbox.refuses = "554 no room for ops@x.example"
    with pytest.raises(NotSent, match="on node-1") as refused:
        send(tmp_path, mail_url(mailbox))
    assert "x.example" not in str(refused.value)


def test_what_the_node_does_not_allow_is_not_reached(mailbox: Mailbox, tmp_path: Path) -> None:
    with pytest.raises(NotSent, match=r"ROTA_DESTINATION_HOSTS there names mail\.example"):
        send(tmp_path, mail_url(mailbox), "mail.example")
    assert mailbox.mails == []


def test_the_memory_of_the_node_is_not_taken_for_that_of_the_message(tmp_path: Path) -> None:
    """The kernel counts what a process had before it became the one that sends."""
    of_the_node = b"\1" * (200 << 20)
    with pytest.raises(NotSent, match="on node-1: ") as refused:
        send(tmp_path, "json://localhost:1")
    assert "too large" not in str(refused.value), len(of_the_node)


def test_an_answer_of_any_size_takes_a_bounded_part_of_the_memory(tmp_path: Path) -> None:
    class Chatterbox(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):  # the other side has had enough
                for _ in range(600):
                    self.wfile.write(bytes(1 << 20))

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Chatterbox) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            with pytest.raises(NotSent, match="the receiver's answer is too large"):
                send(tmp_path, f"json://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            serving.join()


def test_a_process_that_takes_too_long_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own alarm ends it."""
    late = tmp_path / "late"
    late.write_text("#!/bin/sh\nkill -ALRM $$\n")
    late.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(late))
    with pytest.raises(NotSent, match="the message was not accepted within 25 s"):
        send(tmp_path, "json://localhost:1")


@pytest.mark.parametrize("url", ["syslog://", "no url", "json://localhost:1"])
def test_other_urls_reach_nothing_of_the_machine(url: str, tmp_path: Path) -> None:
    with pytest.raises(NotSent, match="on node-1: "):
        send(tmp_path, url, "localhost:1" if url.startswith("json") else "mail.example")
