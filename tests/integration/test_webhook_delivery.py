"""Posting webhooks to a real HTTP server, and the ledger of them in a folder and in a bucket. Without Spark."""

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_tasks.contracts.sink import SinkAway, SinkOvertaken, SinkUnfit
from spark_tasks.table.ledger import Mark
from spark_tasks.webhook.delivery import Delivery, Message, Receiver
from spark_tasks.webhook.ledger import KEPT, LedgerState, Sealed, WebhookLedger
from tasks.places.place import Place
from tasks.webhook_signing import signing_keys
from testkit.servers.object_store import object_store
from testkit.servers.webhook_receiver import SECRET, Fault, WebhookReceiver, webhook_receiver

pytestmark = pytest.mark.integration


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with webhook_receiver() as running:
        yield running


def _post(receiver: WebhookReceiver, *bodies: bytes, patience_s: float = 20, timeout_s: float = 2, **more: Any) -> bool:
    where = Receiver(f"{receiver.url}?token=hush", {"X-Team": "data"}, signing_keys(SECRET), timeout_s)
    delivery = Delivery(replace(where, **more), lambda: False, patience_s)

    async def all_of_them() -> bool:
        async with delivery.connected():
            return all([await delivery.post(Message(f"t/1/{n}", f"m{n}", body)) for n, body in enumerate(bodies)])

    return asyncio.run(all_of_them())


def test_a_request_is_sent_until_it_is_acknowledged_with_the_same_key_and_body(receiver: WebhookReceiver) -> None:
    first = [Fault(None), Fault(None, taken=True), None]
    second = [Fault(500, taken=True), Fault(429, headers={"Retry-After": "1"}), None]
    third = [Fault(503, headers={"Retry-After": "0"}), Fault(200, taken=True, delay_s=3), None]
    faults = [*first, *second, *third]
    receiver.fault = lambda number: faults[number]
    assert _post(receiver, b'[{"n":1}]', b'[{"n":2}]', b'[{"n":3}]', timeout_s=1)
    assert receiver.rows() == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert receiver.wrong == []
    assert receiver.arrivals == len(faults)
    assert receiver.headers[-1]["X-Team"] == "data"
    assert receiver.headers[-1]["Content-Type"] == "application/json"


def test_what_is_refused_is_said_in_a_sentence_without_the_query(receiver: WebhookReceiver) -> None:
    receiver.fault = lambda number: Fault(422, text="no such\n\x1b[31mcolumn " + "x" * 1000)
    with pytest.raises(SinkUnfit, match="/in: the server answered 422: no such ") as raised:
        _post(receiver, b"[]")
    assert "hush" not in str(raised.value)
    assert "\x1b" not in str(raised.value)
    assert len(str(raised.value)) < 300
    assert receiver.arrivals == 1


def test_redirects_are_not_followed(receiver: WebhookReceiver) -> None:
    receiver.fault = lambda number: Fault(307, headers={"Location": "/elsewhere"})
    with pytest.raises(SinkUnfit, match="answered 307"):
        _post(receiver, b"[]")
    assert receiver.paths == {"/in?token=hush"}


def test_a_server_that_fails_for_long_is_left_to_a_later_attempt(receiver: WebhookReceiver) -> None:
    receiver.fault = lambda number: Fault(503, headers={"Retry-After": "3600"}, text="down for repairs")
    with pytest.raises(SinkAway, match=r"answered 503: down for repairs \(tried 1 times\)"):
        _post(receiver, b"[]", patience_s=5)
    with pytest.raises(SinkAway, match="ClientConnectorError"):
        _post(receiver, b"[]", patience_s=0, url="http://127.0.0.1:1/in")
    receiver.fault = lambda number: Fault(200, delay_s=2)
    with pytest.raises(SinkAway, match=r"no answer within 0\.2 s"):
        _post(receiver, b"[]", patience_s=0, timeout_s=0.2)


def test_it_stops_between_two_tries_when_asked_to(receiver: WebhookReceiver) -> None:
    receiver.fault = lambda number: Fault(500)
    where = Receiver(receiver.url, {}, (), 2)
    receiver.signed = False
    delivery = Delivery(where, lambda: receiver.arrivals > 0, patience_s=20)

    async def one() -> bool:
        async with delivery.connected():
            return await delivery.post(Message("k", "m", b"[]"))

    assert asyncio.run(one()) is False
    assert receiver.arrivals == 1
    assert receiver.wrong == []


def _sealed(batch: int, token: int, requests: int = 2) -> Sealed:
    return Sealed(Mark(batch, token), f"id{batch}", f"run~{batch}", {"value": batch}, 10, requests)


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.more)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with object_store() if request.param == "bucket" else nullcontext() as store:
        yield Place(str(tmp_path / "hooks")) if store is None else Place(store.url("hooks/task"), store.options)


def test_of_two_attempts_the_one_that_was_overtaken_changes_nothing(place: Place) -> None:
    old, new = WebhookLedger(place), WebhookLedger(place)
    assert old.read() == LedgerState()
    assert old.change(lambda state: replace(state, holder=1))
    assert old.change(lambda state: state.sealing(_sealed(1, 1), "x"))
    assert not old.change(lambda state: state.sealing(_sealed(1, 1), "x"))
    assert old.change(lambda state: state.having_delivered(1, Mark(1, 1), 1, "x"))

    def overtaken_meanwhile(state: LedgerState) -> LedgerState | None:
        """The other one claims between the old one's read and its write."""
        if state.holder == 1:
            assert new.change(lambda seen: replace(seen, holder=2))
        return state.having_delivered(1, Mark(1, 1), 2, "x")

    with pytest.raises(SinkOvertaken, match="token 2, not 1, holds x"):
        old.change(overtaken_meanwhile)
    assert new.read().delivered == 1
    with pytest.raises(SinkOvertaken):
        old.change(lambda state: state.sealing(_sealed(2, 1), "x"))
    with pytest.raises(SinkUnfit, match="batch 1 of x was not delivered yet"):
        new.change(lambda state: state.sealing(_sealed(2, 2), "x"))
    assert new.change(lambda state: state.having_delivered(2, Mark(1, 1), 2, "x"))
    assert new.change(lambda state: state.sealing(_sealed(2, 2, requests=0), "x"))
    assert new.read().waiting is None
    assert new.read().runs == ("run~1", "run~2")
    assert new.read().visible == old.read().visible


def test_old_versions_are_removed_and_one_that_stood_still_for_long_changes_nothing(place: Place) -> None:
    ledger, slow = WebhookLedger(place), WebhookLedger(place)
    ledger.change(lambda state: replace(state, holder=1))

    def slowly(state: LedgerState) -> LedgerState | None:
        for _ in range(KEPT + 5):
            ledger.change(lambda seen: replace(seen, delivered=seen.delivered + 1))
        return replace(state, holder=9)

    with pytest.raises(SinkOvertaken, match="went on with"):
        slow.change(slowly)
    assert ledger.read() == LedgerState(1, None, KEPT + 5)
    assert len(place.names("versions")) <= KEPT + 2


def test_a_damaged_ledger_is_named(tmp_path: Path) -> None:
    ledger = WebhookLedger(Place(str(tmp_path)))
    ledger.change(lambda state: replace(state, holder=1))
    [file] = (tmp_path / "versions").glob("*.json")
    file.write_text('{"holder": 1')
    with pytest.raises(SinkUnfit, match=r"000000000001\.json is damaged"):
        ledger.read()
