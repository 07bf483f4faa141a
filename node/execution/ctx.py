"""`ctx`: what a kind sees of the cluster while it runs (`tasks.kind.Context`), in the worker."""

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NoReturn

import msgpack
from pydantic import BaseModel

from node.execution import frames
from node.execution.order import Order
from tasks.access import Access
from tasks.errors import Fenced
from tasks.secret import Redactor, resolve

CHECKPOINT_BYTES_MAX: Final = 64 * 1024
PROGRESS_S: Final = 0.25
"""The least time between two frames of progress."""

ASK_AGAIN_S: Final = 0.5
SECRET_BYTES_MIN: Final = 8
"""Shorter secrets may stand in a checkpoint by chance, and are not looked for there."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Wire:
    """The worker's end of the channel to its supervisor. One thread reads it; any may write."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._changed = threading.Condition()
        self._concealing = threading.Lock()
        self._answers: dict[int, str] = {}
        self._noted = 0
        self._sequence = 0
        self._progress: frames.ProgressFrame | None = None
        self._progress_at_s = 0.0
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.stop: str | None = None

    def wait_for_go(self) -> None:
        """Until the supervisor has recorded this process. Exits if the supervisor is gone."""
        while not isinstance(self._receive(), frames.Go):
            pass

    def listen(self) -> None:
        """Start the thread that reads."""
        threading.Thread(target=self._listen, daemon=True, name="wire").start()

    def send(self, frame: frames.Frame) -> None:
        """Say `frame`; waits while the supervisor is behind."""
        self._end.send(frames.pack(frame), socket.MSG_NOSIGNAL)

    def commit(self, data: bytes) -> str:
        """Ask for a checkpoint to be committed, and wait for the answer's code."""
        with self._changed:
            self._sequence += 1
            sequence = self._sequence
        self.send(frames.CheckpointAsk(sequence, data))
        with self._changed:
            self._changed.wait_for(lambda: sequence in self._answers)
            return self._answers.pop(sequence)

    def conceal(self, value: str) -> None:
        """Have a secret's value kept out of the log. Returns when nothing printed from now on can show it."""
        # One at a time, so that an answer is known to be the one to this.
        with self._concealing, self._changed:
            awaited = self._noted + 1
            self.send(frames.Learned(value))
            self._changed.wait_for(lambda: self._noted >= awaited)

    def progress(self, progress: frames.ProgressFrame) -> None:
        """Say how far the work is, now or within `PROGRESS_S`: the latest of what is said in that time."""
        if time.monotonic() - self._progress_at_s >= PROGRESS_S:
            self._progress, self._progress_at_s = None, time.monotonic()
            self.send(progress)
            return
        first, self._progress = self._progress is None, progress
        if first:
            os.write(self._wake_write, b".")

    def flush_progress(self) -> None:
        """Say what was last said of progress and has not been passed on."""
        last, self._progress = self._progress, None
        if last is not None:
            self._progress_at_s = time.monotonic()
            self.send(last)

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while True:
            wait_s = None if self._progress is None else max(0.0, self._progress_at_s + PROGRESS_S - time.monotonic())
            ready = dict(poll.poll(None if wait_s is None else wait_s * 1000 + 1))
            if self._wake_read in ready:
                os.read(self._wake_read, 64)
            if self._end.fileno() in ready:
                self._hear(self._receive())
            if self._progress is not None and time.monotonic() - self._progress_at_s >= PROGRESS_S:
                self.flush_progress()

    def _hear(self, frame: frames.Frame) -> None:
        with self._changed:
            match frame:
                case frames.Stop(why=why):
                    self.stop = why
                case frames.CheckpointDone(sequence=sequence, code=code):
                    self._answers[sequence] = code
                case frames.Noted():
                    self._noted += 1
            self._changed.notify_all()

    def _receive(self) -> frames.Frame:
        frame = frames.receive(self._end)
        if frame is None:
            _leave()
        return frame


def _leave() -> NoReturn:
    """Without a supervisor there is nobody to work for: nothing that is done from here on could count."""
    os._exit(1)


class Ctx:
    """One attempt's view of the cluster. Implements `tasks.kind.Context`."""

    def __init__(
        self, order: Order, params: BaseModel, wire: Wire, scratch: Path, environ: Mapping[str, str], redactor: Redactor
    ) -> None:
        self._order = order
        self._params = params
        self._wire = wire
        self._scratch = scratch
        self._environ = environ
        self._redactor = redactor
        self._checkpoint = None if order.checkpoint is None else _unpacked(order.checkpoint)
        self._known: set[str] = set()
        self._log = logging.getLogger("rota.task")
        self.saw_stop = False

    @property
    def params(self) -> Any:
        """The task's params, checked."""
        return self._params

    @property
    def task(self) -> str:
        """The task's name."""
        return self._order.task

    @property
    def node(self) -> str:
        """The member that makes the attempt."""
        return self._order.node

    @property
    def run_id(self) -> str:
        """The run."""
        return self._order.run_id

    @property
    def attempt(self) -> int:
        """Which try at the run."""
        return self._order.attempt

    @property
    def token(self) -> int:
        """The claim's fencing number."""
        return self._order.token

    @property
    def fire_at(self) -> datetime:
        """When the run was due."""
        return _EPOCH + timedelta(microseconds=self._order.fire_at_us)

    @property
    def checkpoint(self) -> Any:
        """The last committed checkpoint of this run."""
        return self._checkpoint

    def save_checkpoint(self, value: Any) -> None:
        """Commit `value`. Raises `Fenced`, and `ValueError` if it is too large or holds a secret's value."""
        packed = bytes(msgpack.packb(value, datetime=True))
        if len(packed) > CHECKPOINT_BYTES_MAX:
            raise ValueError(f"a checkpoint of {len(packed)} bytes: {CHECKPOINT_BYTES_MAX} at most")
        if self._redactor.holds(packed, SECRET_BYTES_MIN):
            raise ValueError("the checkpoint holds a secret's value, which may not be replicated")
        # The outcome is unknown while there is no majority. Asking again is safe: the data is the same.
        while (code := self._wire.commit(packed)) == "unknown":
            time.sleep(ASK_AGAIN_S)
        if code == "fenced":
            raise Fenced(f"attempt {self.attempt} of {self.run_id} has been taken over by another")
        if code != "ok":
            raise ValueError(f"the checkpoint was refused: {code}")
        self._checkpoint = _unpacked(packed)

    def progress(self, done: float, total: float | None = None, unit: str = "") -> None:
        """Say how far the work is."""
        self._wire.progress(frames.ProgressFrame(float(done), None if total is None else float(total), str(unit)[:64]))

    @property
    def log(self) -> logging.Logger:
        """The attempt's log."""
        return self._log

    @property
    def scratch(self) -> Path:
        """The attempt's own folder."""
        return self._scratch

    def secret(self, reference: Any) -> str:
        """The value of a reference. Raises `MissingSecret`."""
        value = resolve(reference, Path(self._order.secrets_dir), self._order.env_allow, self._environ, self._order.own)
        if value not in self._known:
            self._redactor.learn(value)
            self._wire.conceal(value)
            self._known.add(value)
        return value

    @property
    def access(self) -> Access:
        """What the attempt may reach here."""
        return self._order.access

    @property
    def cancelled(self) -> bool:
        """Whether the attempt should come to an end."""
        if self._wire.stop is None:
            return False
        self.saw_stop = True
        return True


def _unpacked(packed: bytes) -> Any:
    return msgpack.unpackb(packed, strict_map_key=False, timestamp=3)
