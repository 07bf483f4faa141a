"""Rows of an SQLite file to a webhook, with real Spark and a real HTTP server that honours idempotency keys."""

import logging
import random
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from spark_tasks.contracts.sink import SinkAway, SinkUnfit
from spark_tasks.etl.errors import EtlStopped
from spark_tasks.etl.kind import Etl
from spark_tasks.etl.opening import open_sink
from spark_tasks.etl.params import EtlParams
from spark_tasks.webhook.sink import WebhookSink
from tasks.access import Access, AccessRefused
from tasks.kind import Fenced
from testkit.execution.one_attempt import start_attempt
from testkit.fake_context import FakeContext
from testkit.servers.object_store import object_store
from testkit.servers.webhook_receiver import SECRET, Fault, WebhookReceiver, webhook_receiver

pytestmark = [pytest.mark.integration, pytest.mark.spark]

PASSWORD = "Bearer of-a-secret"


class Shop:
    """A source file, a server, and attempts at the one task between them."""

    def __init__(self, folder: Path, receiver: WebhookReceiver) -> None:
        self.folder = folder
        self.receiver = receiver
        self.file = folder / "shop.db"
        self.hooks = folder / "hooks"
        self.attempts = 0
        self.sql("CREATE TABLE item (id INTEGER PRIMARY KEY, v TEXT)")

    def sql(self, text: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(self.file)) as database, database:
            return database.execute(text, values).fetchall()

    def add(self, first: int, last: int) -> None:
        self.sql(
            "WITH RECURSIVE n(i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO item SELECT i, 'v' || i FROM n",
            first,
            last,
        )

    def params(self, **sink: Any) -> dict[str, Any]:
        given = {"type": "webhook", "url": self.receiver.url, "secret": {"secret": "signs"}, "batch_rows": 10}
        given |= {"ledger": str(self.hooks), "shared": True, "timeout_s": 5}
        return {
            "source": {"type": "sqlite", "path": str(self.file), "table": "item", "shared": True},
            "incremental": {"cursor": "id", "lag_s": 0, "batch_rows": 50},
            "sink": given | sink,
        }

    def attempt(self, params: dict[str, Any], token: int, run: int = 1) -> FakeContext[EtlParams]:
        self.attempts += 1
        return FakeContext(
            EtlParams.model_validate(params),
            self.folder / f"scratch-{self.attempts}",
            task="shop.items",
            run_id=f"items~{run}",
            token=token,
            secrets={"signs": SECRET, "password": PASSWORD},
        )

    def started(self, params: dict[str, Any], token: int, die_at: str = "") -> "subprocess.Popen[bytes]":
        """An attempt in a process of its own, which gets SIGKILL when it logs `die_at`."""
        self.attempts += 1
        file = self.folder / f"attempt-{self.attempts}.json"
        given: dict[str, Any] = {"kind": "spark_tasks.etl.kind:Etl", "params": params, "task": "shop.items"}
        given |= {"run_id": "items~1", "token": token, "secrets": {"signs": SECRET}, "die_at": die_at}
        return start_attempt(file, given | {"scratch": str(self.folder / f"scratch-{self.attempts}")}, {})

    def sink(self, token: int) -> WebhookSink:
        context = self.attempt(self.params(), token)
        found = open_sink(context, context.params.sink)
        assert isinstance(found, WebhookSink)
        return found

    def outbox(self) -> list[str]:
        return sorted(path.name for path in (self.hooks / "shop.items" / "outbox").glob("*"))

    def arrived(self) -> list[int]:
        assert self.receiver.wrong == []
        return [row["id"] for row in self.receiver.rows()]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with webhook_receiver() as receiver:
        yield Shop(tmp_path, receiver)


ALL_TYPES = """
SELECT id, CAST('12345678901234567890.10' AS DECIMAL(38,2)) AS price, timestamp '2026-01-02 03:04:05.000006' AS at,
  timestamp_ntz '2026-01-02 03:04:05' AS wall, date '0999-12-31' AS day, unhex('00FF') AS raw, id = 1 AS ok,
  CAST('NaN' AS DOUBLE) AS f, 0.5D AS d, CAST(null AS STRING) AS nothing, null AS void, 'Größe "a"\\n' AS text,
  named_struct('at', timestamp '2026-01-02 00:00:00', 'n', CAST(1.10 AS DECIMAL(5,2))) AS s,
  array(1, null) AS list, map('a', CAST(1.5 AS DECIMAL(3,1))) AS map, interval '1' day AS days
FROM source
"""


@pytest.mark.more
def test_rows_are_posted_signed_with_stated_types_and_each_once(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shop.add(1, 25)
    params = shop.params(headers={"Authorization": {"secret": "password"}, "X-Team": "data"})
    result = Etl().run(shop.attempt(params | {"transform": {"sql": ALL_TYPES}}, token=7))
    assert (result["rows"], result["batches"], result["cursor"]) == (25, 1, {"cursor": "id", "value": 25})
    assert shop.arrived() == list(range(1, 26))
    row = shop.receiver.rows()[0]
    assert row.pop("days").startswith("INTERVAL '1'")
    assert row == {
        "id": 1,
        "price": "12345678901234567890.10",
        "at": "2026-01-02T03:04:05.000006Z",
        "wall": "2026-01-02T03:04:05.000000",
        "day": "0999-12-31",
        "raw": "AP8=",
        "ok": True,
        "f": "NaN",
        "d": 0.5,
        "nothing": None,
        "void": None,
        "text": 'Größe "a"\n',
        "s": {"at": "2026-01-02T00:00:00.000000Z", "n": "1.10"},
        "list": [1, None],
        "map": {"a": "1.5"},
    }
    keys = [key.split("/") for key in shop.receiver.taken]
    assert [(task, batch.split("-")[0], number) for task, batch, number in keys] == [
        ("shop.items", "1", number) for number in ("1", "2", "3")
    ]
    assert {one["Authorization"] for one in shop.receiver.headers} == {PASSWORD}
    nothing = shop.attempt(params, token=8, run=2)
    assert Etl().run(nothing)["batches"] == 0
    assert not (nothing.scratch / "log4j2.properties").exists()
    shop.add(26, 30)
    assert Etl().run(shop.attempt(params, token=9, run=3))["rows"] == 5
    assert shop.arrived() == list(range(1, 31))
    assert shop.outbox() == []
    said = caplog.text + "".join(path.read_text() for path in shop.hooks.rglob("*.json"))
    assert "of-a-secret" not in said
    assert SECRET[6:] not in said


FAULTS = (
    Fault(None),
    Fault(None, taken=True),
    Fault(500),
    Fault(502, taken=True),
    Fault(429, headers={"Retry-After": "1"}),
    Fault(503, headers={"Retry-After": "0"}, taken=True),
    Fault(200, taken=True, delay_s=3),
)


@pytest.mark.soak
@pytest.mark.parametrize("where", ["folder", "bucket"])
def test_nothing_is_missing_and_nothing_twice_where_the_server_fails(shop: Shop, where: str) -> None:
    draw = random.Random(3)
    shop.receiver.fault = lambda number: draw.choice(FAULTS) if draw.random() < 0.3 else None
    shop.add(1, 180)
    with object_store() if where == "bucket" else nullcontext() as store:
        place = {} if store is None else {"ledger": store.url("hooks"), "options": store.options}
        result = Etl().run(shop.attempt(shop.params(timeout_s=1, **place), token=1))
        assert (result["rows"], result["batches"]) == (180, 4)
        assert shop.arrived() == list(range(1, 181))
        if store is not None:
            assert store.names("hooks/shop.items/outbox") == []


@pytest.mark.soak
def test_what_was_refused_is_delivered_later_as_it_was_though_the_source_has_changed(shop: Shop) -> None:
    """The server takes a request, and the attempt does not learn of it: the next one must not send other rows."""
    shop.add(1, 30)
    params = shop.params()
    shop.receiver.fault = lambda number: Fault(400, taken=True, text="bad " * 100) if number == 1 else None
    with pytest.raises(SinkUnfit, match=r"/in: the server answered 400: bad bad .{188,192}$"):
        Etl().run(shop.attempt(params, token=1))
    assert len(shop.outbox()) == 1
    shop.sql("DELETE FROM item WHERE id < 20")
    shop.sql("UPDATE item SET v = 'changed'")
    later = shop.attempt(params, token=2, run=2)
    assert Etl().run(later)["batches"] == 0
    assert not (later.scratch / "log4j2.properties").exists(), "what waits is delivered without Spark"
    assert shop.arrived() == list(range(1, 31))
    assert "changed" not in str(shop.receiver.rows())
    assert shop.receiver.arrivals == 4, "the first request was noted as delivered, and the second came again"
    assert shop.outbox() == []


@pytest.mark.soak
def test_a_source_that_is_read_whole_is_posted_once_for_each_run(shop: Shop) -> None:
    shop.add(1, 12)
    params = shop.params()
    del params["incremental"]
    assert Etl().run(shop.attempt(params, token=1))["rows"] == 12
    assert Etl().run(shop.attempt(params, token=2))["rows"] == 0  # the same run again
    assert Etl().run(shop.attempt(params, token=3, run=2))["rows"] == 12
    assert shop.arrived() == [*range(1, 13), *range(1, 13)]


@pytest.mark.soak
def test_it_stops_between_two_requests_and_the_next_attempt_goes_on_there(shop: Shop) -> None:
    shop.add(1, 50)
    stopped = shop.attempt(shop.params(), token=1)

    def stop(number: int) -> None:
        stopped.cancelled = number >= 1

    shop.receiver.arrived = stop
    with pytest.raises(EtlStopped, match="the next attempt delivers the rest"):
        Etl().run(stopped)
    assert shop.receiver.arrivals == 2
    assert Etl().run(shop.attempt(shop.params(), token=2))["batches"] == 0
    assert shop.receiver.arrivals == 5
    assert shop.arrived() == list(range(1, 51))


@pytest.mark.soak
@pytest.mark.parametrize("die_at", ["is planned", "rows are staged", "is committed", "requests are delivered"])
def test_an_attempt_that_is_killed_neither_loses_nor_doubles_a_row(shop: Shop, die_at: str) -> None:
    shop.add(1, 45)
    assert shop.started(shop.params(), 1, die_at).wait(timeout=240) == -signal.SIGKILL
    assert len(shop.arrived()) == (45 if die_at == "requests are delivered" else 0)
    shop.sql("UPDATE item SET v = 'changed'")
    Etl().run(shop.attempt(shop.params(), token=2))
    assert shop.arrived() == list(range(1, 46))
    sealed = die_at in ("is committed", "requests are delivered")
    assert ("changed" in str(shop.receiver.rows())) is not sealed
    # What is acknowledged and was not removed goes with the next attempt that has work.
    assert shop.outbox() == (["00000001-1.jsonl.zst"] if die_at == "requests are delivered" else [])
    shop.add(46, 47)
    assert Etl().run(shop.attempt(shop.params(), token=3, run=2))["rows"] == 2
    assert shop.outbox() == []


@pytest.mark.soak
@pytest.mark.parametrize("taken", [True, False])
def test_an_attempt_that_is_killed_between_a_request_and_its_answer_is_carried_on(shop: Shop, taken: bool) -> None:
    shop.add(1, 45)
    running: list[subprocess.Popen[bytes]] = []
    shop.receiver.fault = lambda number: Fault(None, taken=taken) if number == 2 else None
    shop.receiver.arrived = lambda number: running[0].kill() if number == 2 else None
    running.append(shop.started(shop.params(), 1))
    assert running[0].wait(timeout=240) == -signal.SIGKILL
    shop.sql("UPDATE item SET v = 'changed'")
    Etl().run(shop.attempt(shop.params(), token=2))
    assert shop.arrived() == list(range(1, 46))
    assert "changed" not in str(shop.receiver.rows())
    assert shop.receiver.arrivals == 3 + 5, "what was not noted is sent again, with the same keys"


@pytest.mark.soak
def test_of_two_attempts_at_once_the_one_that_was_overtaken_seals_nothing(shop: Shop) -> None:
    shop.add(1, 20)
    old = shop.attempt(shop.params(), token=1)

    def overtake(value: Any) -> None:
        if value["plan"] is None:
            return
        assert shop.sink(2).claim(2, instead_of=1)

        def fenced(value: Any) -> None:
            raise Fenced("token 2 has the run")

        old.before_checkpoint = fenced

    old.before_checkpoint = overtake
    with pytest.raises(Fenced):
        Etl().run(old)
    assert shop.receiver.arrivals == 0
    assert len(shop.outbox()) == 1
    assert Etl().run(shop.attempt(shop.params(), token=2))["rows"] == 20
    assert shop.arrived() == list(range(1, 21))
    assert shop.outbox() == []
    assert not shop.sink(1).claim(1, instead_of=1)


@pytest.mark.soak
def test_an_attempt_that_is_overtaken_while_it_delivers_ends_and_its_rows_count_once(shop: Shop) -> None:
    shop.add(1, 30)
    old = shop.attempt(shop.params(), token=1)

    def overtake(number: int) -> None:
        if number == 1:
            assert shop.sink(2).claim(2, instead_of=1)

            def fenced(value: Any) -> None:
                raise Fenced("token 2 has the run")

            old.before_checkpoint = fenced

    shop.receiver.arrived = overtake
    with pytest.raises(Fenced):
        Etl().run(old)
    assert shop.arrived() == list(range(1, 31))
    assert Etl().run(shop.attempt(shop.params(), token=2))["batches"] == 0
    assert shop.receiver.arrivals == 6
    assert shop.arrived() == list(range(1, 31))


@pytest.mark.soak
def test_what_cannot_work_is_said_before_spark_is_started(shop: Shop, tmp_path: Path) -> None:
    shop.add(1, 3)
    context = shop.attempt(shop.params(), token=1)
    context.access = Access("node-1", ("/",), ("/nowhere",), ("*",), ("*",))
    with pytest.raises(AccessRefused, match="ROTA_DESTINATION_ROOTS"):
        Etl().run(context)
    context.access = Access("node-1", ("/",), ("/",), ("*",), ("elsewhere",))
    with pytest.raises(AccessRefused, match="ROTA_DESTINATION_HOSTS"):
        Etl().run(context)
    context = shop.attempt(shop.params(), token=1)
    context.secrets = {"signs": "not-a-signing-secret"}
    with pytest.raises(SinkUnfit, match="a signing secret is whsec_ and 24 to 64 bytes") as raised:
        Etl().run(context)
    assert "not-a" not in str(raised.value)
    (shop.hooks / "shop.items").mkdir(parents=True)
    (shop.hooks / "shop.items" / "outbox").symlink_to(tmp_path / "elsewhere")
    context = shop.attempt(shop.params(), token=1)
    context.access = Access("node-1", ("/",), (str(shop.hooks),), ("*",), ("*",))
    with pytest.raises(AccessRefused, match="ROTA_DESTINATION_ROOTS"):
        Etl().run(context)
    assert shop.receiver.arrivals == 0
    assert not any(shop.folder.glob("scratch-*/log4j2.properties"))


@pytest.mark.soak
def test_a_server_that_is_away_fails_the_attempt_and_a_later_one_delivers(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_tasks.webhook.sink.PATIENCE_S", 0.5)
    shop.add(1, 20)
    shop.receiver.fault = lambda number: Fault(503, text="closed")
    with pytest.raises(SinkAway, match="answered 503: closed"):
        Etl().run(shop.attempt(shop.params(), token=1))
    shop.receiver.fault = lambda number: None
    shop.add(21, 25)
    assert Etl().run(shop.attempt(shop.params(), token=2))["rows"] == 5
    assert shop.arrived() == list(range(1, 26))


@pytest.mark.parametrize("kills", [pytest.param(3, marks=pytest.mark.soak), pytest.param(20, marks=pytest.mark.soak)])
def test_attempts_that_are_killed_at_any_moment_neither_lose_nor_double_a_row(shop: Shop, kills: int) -> None:
    """Each is killed a moment after it has sent some requests, so in any step of a batch."""
    draw = random.Random(14)
    shop.receiver.fault = lambda number: draw.choice(FAULTS[:4]) if draw.random() < 0.05 else None
    shop.add(1, 400 * kills)
    params = shop.params() | {"incremental": {"cursor": "id", "lag_s": 0, "batch_rows": 200}}
    for token in range(1, kills + 1):
        last = shop.receiver.arrivals + draw.randint(0, 25)
        attempt = shop.started(params, token)
        killing = threading.Timer(draw.uniform(0, 0.5), attempt.kill)
        shop.receiver.arrived = lambda number, last=last, killing=killing: killing.start() if number == last else None  # type: ignore[misc]
        assert attempt.wait(timeout=240) == -signal.SIGKILL
        killing.join()
        shop.sql("UPDATE item SET v = 'of attempt ' || ?", token)
    before = shop.receiver.arrivals
    Etl().run(shop.attempt(params, token=kills + 1))
    assert shop.arrived() == list(range(1, 400 * kills + 1))
    assert shop.outbox() == []
    taken = len(shop.receiver.taken)
    print(f"{before} requests came while {kills} attempts were killed, {shop.receiver.arrivals} in all for {taken}")
