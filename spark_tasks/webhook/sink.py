"""Posts rows to an HTTP server, which takes part in no transaction.

A batch is committed once the ledger records it as sealed: its requests are then stored beside the ledger, and never
change. Then this attempt, or a later one, delivers them, always with the same keys and the same bodies. After a crash
between a delivery and its record in the ledger, a request is sent again. The server can recognize it by its key, even
if the source has changed since.
"""

import asyncio
import io
import json
import secrets
import time
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, Final, cast

from spark_tasks.contracts.fetched import check_case_distinct, fetch, python_values
from spark_tasks.contracts.json_values import json_encoder
from spark_tasks.contracts.sink import About, Committed, SinkUnfit, Staged, Visible
from spark_tasks.storage.errors import store_errors
from spark_tasks.table.ledger import Mark, mark_named
from spark_tasks.webhook.delivery import PATIENCE_S, Delivery, Message, Receiver
from spark_tasks.webhook.ledger import LedgerState, Sealed, WebhookLedger
from spark_tasks.webhook.params import OUTBOX
from tasks.kind import Context

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_tasks.contracts.fetched import FetchedRows
    from spark_tasks.webhook.params import Webhook
    from tasks.places.place import Place


BODY_BYTES: Final = 4 << 20
"""A request whose body has reached this size gets no more rows."""


def bodies(fetched: "FetchedRows", rows_max: int) -> Iterator[tuple[int, bytes]]:
    """Yield the requests' bodies, each a JSON array of objects, with the number of their rows. Raises `SinkUnfit`."""
    objects: list[bytes] = []
    size = 0
    for each in _objects(fetched):
        objects.append(each)
        size += len(each) + 1
        if len(objects) == rows_max or size >= BODY_BYTES:
            yield len(objects), b"[%b]" % b",".join(objects)
            objects, size = [], 0
    if objects:
        yield len(objects), b"[%b]" % b",".join(objects)


def _objects(fetched: "FetchedRows") -> Iterator[bytes]:
    schema = fetched.schema()
    encoders = [json_encoder(field.type) for field in schema]
    for batch in fetched.batches():
        columns = [python_values(column, field.name) for column, field in zip(batch.columns, schema, strict=True)]
        for row in zip(*columns, strict=True):
            values = (None if value is None else encode(value) for encode, value in zip(encoders, row, strict=True))
            named = dict(zip(schema.names, values, strict=True))
            yield json.dumps(named, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def write_bodies(out: IO[bytes], found: Iterator[tuple[int, bytes]]) -> tuple[int, int]:
    """Write bodies to a compressed file, one in each line. Returns the numbers of rows and of requests."""
    import zstandard

    rows = requests = 0
    with zstandard.ZstdCompressor(write_checksum=True).stream_writer(out, closefd=False) as packed:
        for count, body in found:
            packed.write(body + b"\n")  # JSON itself has no line breaks
            rows += count
            requests += 1
    return rows, requests


def read_bodies(file: IO[bytes], requests: int, named: str) -> Iterator[bytes]:
    """Yield the bodies in a file of `write_bodies`. Raises `SinkUnfit` if their number is not `requests`."""
    import zstandard

    found = 0
    try:
        with zstandard.ZstdDecompressor().stream_reader(file, closefd=False) as unpacked:
            for line in io.BufferedReader(cast("io.RawIOBase", unpacked), 1 << 20):
                found += 1
                yield line.removesuffix(b"\n")
    except zstandard.ZstdError as error:
        raise SinkUnfit(f"{named} is damaged ({error}): its batch cannot be delivered") from None
    if found != requests:
        raise SinkUnfit(f"{named} has {found} requests, and {requests} were written: its batch cannot be delivered")


NOTE_S: Final = 5.0
"""The seconds between two records of acknowledged requests. Requests acknowledged after the last record may be sent
again after a crash.
"""


class WebhookSink:
    """The server `receiver`, to which the attempt `ctx` posts. The ledger is in `place`, a folder of the task's own.

    `local` says that Spark's executors are on this machine. The class implements `Sink` and `DeliveringSink` of
    `contracts.sink`. Its methods raise `SinkAway`, `SinkUnfit`, and the errors of `storage.errors`.
    """

    def __init__(self, ctx: Context[Any], params: "Webhook", receiver: Receiver, place: "Place", local: bool) -> None:
        self.ctx = ctx
        self.params = params
        self.place = place
        self.ledger = WebhookLedger(place)
        self.delivery = Delivery(receiver, lambda: ctx.cancelled, PATIENCE_S)
        self.target = receiver.shown
        self.scratch = ctx.scratch / "staged"
        self.local = local

    def last(self) -> Visible | None:
        """Return the last sealed batch; None if no batch is sealed."""
        return self.ledger.read().visible

    def has_run(self, run_id: str) -> bool:
        """Whether one of the newest sealed batches is of that run."""
        return run_id in self.ledger.read().runs

    def holder(self) -> int | None:
        """Return the token of the attempt that holds the task's ledger."""
        return self.ledger.read().holder

    def claim(self, token: int, instead_of: int | None) -> bool:
        """Make the attempt with `token` the holder."""

        def claimed(state: LedgerState) -> LedgerState | None:
            if state.holder not in {token, instead_of}:
                return None
            return LedgerState(token, state.last, state.delivered, state.runs)

        return self.ledger.change(claimed)

    def _outbox(self, mark: Mark) -> str:
        return f"{OUTBOX}/{mark.name}.jsonl.zst"

    def write(self, rows: "DataFrame", mark: Mark) -> Staged:
        """Write the requests beside the ledger. No request is sent yet."""
        check_case_distinct(rows.columns)
        fetched = fetch(rows, self.scratch / mark.name, self.local)
        with store_errors(self.place), self.place.writing(self._outbox(mark)) as out:
            count, requests = write_bodies(out, bodies(fetched, self.params.batch_rows))
        fetched.remove()
        return Staged(count, (requests,))

    def commit(self, mark: Mark, written: Staged, about: About) -> Committed:
        """Seal the batch: from then on its requests do not change, and will be delivered."""
        [requests] = written.parts
        sealed = Sealed(
            mark=mark,
            id=secrets.token_hex(8),
            run_id=about.run_id,
            cursor=about.cursor,
            rows=written.rows,
            requests=requests,
        )
        self.ledger.change(lambda state: state.sealing(sealed, self.target))
        return Committed(written.rows, 0)

    def undelivered(self) -> bool:
        """Whether requests of the last batch were not acknowledged."""
        return self.ledger.read().waiting is not None

    def deliver(self) -> bool:
        """Post the requests that were not acknowledged. Returns False if asked to stop before the end."""
        state = self.ledger.read()
        if state.waiting is None:
            return True
        outbox = self._outbox(state.waiting.mark)
        try:
            done = asyncio.run(self._posted(state.waiting, state.delivered))
        except FileNotFoundError:
            raise SinkUnfit(
                f"{self.place.shown(outbox)} is missing: batch {state.waiting.mark.batch} cannot be delivered. Restore "
                "it, or take another ledger"
            ) from None
        if done:
            with store_errors(self.place):
                self.place.remove(outbox)
        return done

    async def _posted(self, sealed: Sealed, first: int) -> bool:
        """Post all requests except the first `first` ones. Returns False if asked to stop before the end."""
        outbox = self._outbox(sealed.mark)
        delivered, noted_s = first, time.monotonic()
        try:
            with store_errors(self.place), self.place.reading(outbox) as file:
                async with self.delivery.connected() as delivery:
                    for number, body in enumerate(read_bodies(file, sealed.requests, self.place.shown(outbox)), 1):
                        if number <= first:
                            continue
                        if not await delivery.post(self._message(sealed, number, body)):
                            return False
                        delivered = number
                        if time.monotonic() - noted_s > NOTE_S:
                            self._note(sealed, delivered)
                            noted_s = time.monotonic()
        finally:
            self._note(sealed, delivered)
        return True

    def _message(self, sealed: Sealed, number: int, body: bytes) -> Message:
        # A receiver may remember keys for longer than the ledger exists, so the random id distinguishes batches with
        # the same number in two ledgers. A message's id may not contain a full stop, which a task's name may.
        return Message(f"{self.ctx.task}/{sealed.mark.batch}-{sealed.id}/{number}", f"msg_{sealed.id}_{number}", body)

    def _note(self, sealed: Sealed, delivered: int) -> None:
        """Record in the ledger how many requests were acknowledged. Raises `SinkOvertaken`."""
        if self.ledger.change(
            lambda state: state.having_delivered(self.ctx.token, sealed.mark, delivered, self.target)
        ):
            self.ctx.log.info(
                "batch %d: %d of %d requests are delivered", sealed.mark.batch, delivered, sealed.requests
            )

    def sweep(self) -> list[str]:
        """Remove requests of delivered batches, and unsealed ones of overtaken attempts. Returns their paths."""
        state = self.ledger.read()
        gone = []
        with store_errors(self.place):
            for name in self.place.names(OUTBOX):
                mark = mark_named(name.partition(".")[0])
                if mark is None or (state.waiting is not None and mark == state.waiting.mark):
                    continue
                if mark.token == state.holder and (state.last is None or mark.batch > state.last.mark.batch):
                    continue
                self.place.remove(f"{OUTBOX}/{name}")
                gone.append(self.place.shown(f"{OUTBOX}/{name}"))
        return gone
