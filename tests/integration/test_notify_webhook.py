"""A message to a webhook, over a real connection: what is sent, how it is signed, and what is made of answers."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.duty.telling import Send
from node.notify import webhook
from node.notify.secrets_here import SenderSettings
from node.notify.sender import ChannelSender
from node.notify.teller import NotSent
from node.state.channel import Channel
from node.state.outbox import Notice, Permission
from tasks.access import Access, parse_hosts
from testkit.servers.webhook_receiver import SECRET, Fault, WebhookReceiver, webhook_receiver

pytestmark = pytest.mark.integration

NOTICES = (
    Notice("17.0", "run_failed", "error", 1_795_240_500_000_000, "nightly failed", task="nightly", run_id="nightly~1"),
    Notice("19.0", "member_down", "warning", 1_795_240_501_000_000, "b is down: it is silent", member="b"),
)


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with webhook_receiver() as made:
        yield made
        assert made.wrong == []


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "key").write_text(SECRET + "\n")
    return tmp_path


def send(secrets: Path, hosts: str = "*", now_us: int | None = None, **fields: Any) -> str:
    now_us = now_us or time.time_ns() // 1000
    channel = Channel.model_validate({"kind": "webhook", "secret": {"secret": "key"}} | fields)
    settings = SenderSettings("node-1", Access("node-1", destination_hosts=parse_hosts(hosts)), secrets)
    message = Send("ops", Permission(5, "node-1", 1, ("17.0", "19.0")), channel, NOTICES, 3)
    return asyncio.run(ChannelSender(settings, lambda: now_us).send("c-1", message))


def test_a_message_is_signed_and_says_what_came_to_pass(receiver: WebhookReceiver, secrets: Path) -> None:
    assert send(secrets, url=receiver.url) == "204"
    [(named, body)] = receiver.taken.items()
    told = json.loads(body)
    assert (told["id"], told["cluster"], told["channel"], told["severity"]) == (named, "c-1", "ops", "error")
    assert told["title"] == "Rota: 2 notices (1 error, 1 warning)"
    assert told["dropped"] == 3
    assert [notice["key"] for notice in told["notices"]] == ["c-1-17.0", "c-1-19.0"]
    assert told["notices"][0]["run_id"] == "nightly~1"
    assert told["notices"][1]["member"] == "b"
    assert receiver.headers[0]["x-rota-node"] == "node-1"


def test_it_is_signed_by_the_clock_that_the_members_agree_on(receiver: WebhookReceiver, secrets: Path) -> None:
    """A receiver refuses what is signed minutes ago, or ahead: a member whose own clock is wrong would tell nothing."""
    agreed_s = int(time.time()) - 200
    send(secrets, url=receiver.url, now_us=agreed_s * 1_000_000 + 999_999)
    assert receiver.headers[0]["webhook-timestamp"] == str(agreed_s)


def test_the_same_notices_are_the_same_message(receiver: WebhookReceiver, secrets: Path) -> None:
    send(secrets, url=receiver.url)
    send(secrets, url=receiver.url)
    assert (receiver.arrivals, len(receiver.taken)) == (2, 1)


def test_a_url_and_a_secret_come_from_the_nodes_secrets(receiver: WebhookReceiver, secrets: Path) -> None:
    (secrets / "hook").write_text(receiver.url + "?token=hunter2hunter2")
    send(secrets, url={"secret": "hook"})
    assert receiver.paths == {"/in?token=hunter2hunter2"}
    with pytest.raises(NotSent, match="on node-1: secret 'nowhere': cannot read"):
        send(secrets, url={"secret": "nowhere"})
    (secrets / "lines").write_text("https://x.example/\nhunter2")
    with pytest.raises(
        NotSent, match=r"^on node-1: the url in secret 'lines': it has spaces or control characters in it$"
    ):
        send(secrets, url={"secret": "lines"})
    (secrets / "empty").write_text("\n")
    with pytest.raises(NotSent, match=r"^on node-1: secret 'empty' is empty: write"):
        send(secrets, url={"secret": "empty"})


def test_an_unsigned_channel_signs_nothing(receiver: WebhookReceiver, secrets: Path) -> None:
    receiver.signed = False
    send(secrets, url=receiver.url, secret=None)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (Fault(500, text="no room"), "answered 500 no room"),
        (Fault(302, headers={"Location": "http://127.0.0.1:1/"}), "a redirect, which is not followed"),
        (Fault(None), "cannot be reached"),
        (Fault(410, text="x" * 100_000), "answered 410 x{200}$"),
    ],
)
def test_what_is_not_accepted_says_why(receiver: WebhookReceiver, secrets: Path, fault: Fault, why: str) -> None:
    receiver.fault = lambda number: fault
    with pytest.raises(NotSent, match=why):
        send(secrets, url=receiver.url)
    assert receiver.arrivals == 1


def test_a_receiver_that_does_not_answer_is_not_waited_for(
    receiver: WebhookReceiver, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.fault = lambda number: Fault(200, delay_s=1)
    monkeypatch.setattr(webhook, "SEND_S", 0.2)
    with pytest.raises(NotSent, match=r"did not answer within 0\.2 s"):
        send(secrets, url=receiver.url)


def test_an_address_that_the_node_does_not_allow_is_not_reached(receiver: WebhookReceiver, secrets: Path) -> None:
    with pytest.raises(NotSent, match=r"ROTA_DESTINATION_HOSTS there names hooks\.example"):
        send(secrets, hosts="hooks.example", url=receiver.url)
    (secrets / "hook").write_text(receiver.url)
    with pytest.raises(NotSent) as refused:
        send(secrets, hosts="hooks.example", url={"secret": "hook"})
    assert "127.0.0.1" not in str(refused.value)
    assert receiver.arrivals == 0


def test_no_secret_is_told_in_an_error(receiver: WebhookReceiver, secrets: Path) -> None:
    (secrets / "hook").write_text(receiver.url + "?token=hunter2hunter2")
    url = (secrets / "hook").read_text()
    receiver.fault = lambda number: Fault(403, text=f"no such hook: {url}")
    with pytest.raises(NotSent, match=r"no such hook: \[secret\]"):
        send(secrets, url={"secret": "hook"})
    (secrets / "key").write_text("hunter2hunter2")
    with pytest.raises(NotSent, match="a signing secret is whsec_") as refused:
        send(secrets, url=receiver.url)
    assert "hunter2" not in str(refused.value)
