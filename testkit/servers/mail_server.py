"""A real SMTP server on loopback, and what it took."""

import email
import email.policy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from node.cli.ports import free_ports


@dataclass
class Mailbox:
    """`mails` were taken; with `refuses`, an answer of SMTP, none is. `url` is that of Apprise, with a query begun."""

    url: str = ""
    refuses: str = ""
    mails: list[EmailMessage] = field(default_factory=list)

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.refuses:
            return self.refuses
        content = envelope.content
        assert isinstance(content, bytes)
        mail = email.message_from_bytes(content, policy=email.policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        return "250 taken"


@contextmanager
def mail_server() -> Iterator[Mailbox]:
    """A server that lasts as long as the block."""
    [port] = free_ports(1)
    mailbox = Mailbox(f"mailto://127.0.0.1:{port}?mode=insecure")
    controller = Controller(mailbox, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield mailbox
    finally:
        controller.stop()
