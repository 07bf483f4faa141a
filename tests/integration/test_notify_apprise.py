"""A message by Apprise: mail to a real SMTP server, and what Apprise may not reach."""

import asyncio
import email
import email.policy
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from node.cli.ports import free_ports
from node.duty.telling import Send
from node.notify.secrets_here import SenderSettings
from node.notify.sender import ChannelSender
from node.notify.teller import NotSent
from node.state.channel import Channel
from node.state.outbox import Notice, Permission
from tasks.access import Access, parse_hosts

pytestmark = pytest.mark.integration


class Mailbox:
    """What an SMTP server took; `refuses`: it takes nothing."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.refuses = ""

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.refuses:
            return self.refuses
        content = envelope.content
        assert isinstance(content, bytes)
        mail = email.message_from_bytes(content, policy=email.policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        return "250 taken"


@pytest.fixture(scope="module")
def server() -> Iterator[Controller]:
    [port] = free_ports(1)
    controller = Controller(Mailbox(), hostname="127.0.0.1", port=port)
    controller.start()
    yield controller
    controller.stop()


@pytest.fixture
def mailbox(server: Controller) -> Mailbox:
    box: Mailbox = server.handler
    box.mails.clear()
    box.refuses = ""
    return box


def send(secrets: Path, url: str, hosts: str = "*") -> str:
    (secrets / "mail").write_text(url)
    settings = SenderSettings("node-1", Access("node-1", destination_hosts=parse_hosts(hosts)), secrets)
    channel = Channel.model_validate({"kind": "apprise", "url": {"secret": "mail"}})
    notice = Notice(
        "17.0", "run_failed", "error", 1_795_240_500_000_000, "nightly failed, after 3 attempts: no such table"
    )
    message = Send("ops", Permission(5, "node-1", 1, ("17.0",)), channel, (notice,), 2)
    return asyncio.run(ChannelSender(settings).send("c-1", message))


def mail_url(server: Controller) -> str:
    return f"mailto://127.0.0.1:{server.port}?from=rota@x.example&to=ops@x.example&mode=insecure"


def test_a_mail_says_what_came_to_pass(server: Controller, mailbox: Mailbox, tmp_path: Path) -> None:
    assert send(tmp_path, mail_url(server)) == "accepted"
    [mail] = mailbox.mails
    assert mail["Subject"] == "Rota: nightly failed, after 3 attempts: no such table"
    assert mail["To"] == "ops@x.example"
    body = mail.get_body(("plain", "html"))
    assert body is not None
    text = body.get_content()
    assert "2026-11-21T05:55:00Z" in text
    assert "2 older notices were dropped" in text
    assert "cluster c-1, channel ops" in text


@pytest.mark.more
def test_a_server_that_refuses_is_told_without_the_secret(server: Controller, mailbox: Mailbox, tmp_path: Path) -> None:
    mailbox.refuses = "554 no room for ops@x.example"
    with pytest.raises(NotSent, match="on node-1") as refused:
        send(tmp_path, mail_url(server))
    assert "x.example" not in str(refused.value)


@pytest.mark.more
def test_what_the_node_does_not_allow_is_not_reached(server: Controller, mailbox: Mailbox, tmp_path: Path) -> None:
    with pytest.raises(NotSent, match=r"ROTA_DESTINATION_HOSTS there names mail\.example"):
        send(tmp_path, mail_url(server), "mail.example")
    assert mailbox.mails == []


@pytest.mark.more
@pytest.mark.parametrize("url", ["syslog://", "no url", "json://localhost:1"])
def test_other_urls_reach_nothing_of_the_machine(url: str, tmp_path: Path) -> None:
    with pytest.raises(NotSent, match="on node-1: "):
        send(tmp_path, url, "localhost:1" if url.startswith("json") else "mail.example")
